"""What a node answers: exchanges with its peers, and commands of clients."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa

from tidemill.counters import Ledger, Replica
from tidemill.counters.replication.link import EXCHANGE
from tidemill.counters.replication.parcel import ANYBODY, pack, unpack
from tidemill.counters.replication.server import Call
from tidemill.counters.replication.sightings import Sightings
from tidemill.counters.replication.traffic import Traffic
from tidemill.errors import (
    Closed,
    DuplicateNode,
    InvalidInput,
    NoAccess,
    NodeRemoved,
    TidemillError,
    TooLarge,
    Unavailable,
)
from tidemill.limits import COMMAND_BYTES_MAX, MESSAGE_BYTES_MAX, READER_S_MAX
from tidemill.shown import shown


class Responder:
    """Answers in the name of one ledger. Many threads at once."""

    def __init__(
        self,
        ledger: Ledger,
        traffic: Traffic,
        token: bytes,
        on_halt: Callable[[TidemillError], None],
    ) -> None:
        self._ledger = ledger
        self._traffic = traffic
        self._token = token
        self._on_halt = on_halt
        self._readers: dict[Replica, float] = {}  # when each was seen last
        self._sightings = Sightings()
        self._lock = threading.Lock()  # of the sightings, and of the readers
        self._commands: dict[str, Callable[[dict[str, Any]], Any]] = {
            "get": lambda said: {"value": ledger.get(_name(said))},
            "upsert": lambda said: {"value": ledger.upsert(_name(said), _whole(said, "delta"))},
            "upsert-many": self._upsert_many,
            "update-ttl": self._update_ttl,
            "delete": lambda said: ledger.delete(_name(said)),
            "parts": self._parts,
            "all": lambda _: dict(zip(("live", "expired"), ledger.all(), strict=True)),
            "nodes": self._nodes,
            "remove-node": lambda said: ledger.remove_node(_text(said, "node")),
        }

    def answer(self, call: Call) -> Iterator[bytes | pa.Buffer]:
        """The answer to a call, in one piece or none."""
        try:
            yield from self._answer(call)
        except Closed as error:
            # The ledger is closed before the server is; whoever called has closed nothing.
            raise Unavailable(f"{self._ledger.replica.node} is closing") from error

    def _answer(self, call: Call) -> Iterator[bytes | pa.Buffer]:
        if call.action == EXCHANGE:
            yield from self._exchange(call)
            return
        command = self._commands.get(call.action)
        if command is None:
            raise InvalidInput(f"a node knows no action {call.action[:64]!r}")
        found = json.dumps(command(_said(call.body))).encode()
        if len(found) > MESSAGE_BYTES_MAX:
            raise TooLarge(f"the answer has {len(found):,} bytes, over {MESSAGE_BYTES_MAX:,}")
        yield found

    def forget_readers(self) -> None:
        """Let go of what is known of read-only nodes that have gone."""
        now_s = time.monotonic()
        with self._lock:
            for reader, seen_s in list(self._readers.items()):
                if now_s - seen_s > READER_S_MAX:
                    del self._readers[reader]
                    self._ledger.forget_reader(reader)
                    if all(other.node != reader.node for other in self._readers):
                        self._traffic.forget(reader.node)

    def _exchange(self, call: Call) -> Iterator[bytes]:
        message, token, to = unpack(call.body)
        if token == self._token:
            return  # Our own link has found us.
        node = message.sender.node
        if call.caller is not None and call.caller != node:
            raise NoAccess(
                f"the certificate of {call.caller or 'nobody'} does not speak for {node}: "
                "the first name in a certificate is the id of its node"
            )
        try:
            # Held throughout, so that they are noted in the order in which they were believed; the
            # ledger answers them one by one anyway.
            with self._lock:
                self._sightings.check(node, token.hex())
                if to in (ANYBODY, self._ledger.replica.incarnation):
                    reply = self._ledger.answer(message)
                    self._sightings.note(node, token.hex())
                else:
                    # It is meant for an earlier life of this node, and leaves out what that had.
                    reply = self._ledger.hello()
                if message.is_reader:
                    self._readers[message.sender] = time.monotonic()
        except (DuplicateNode, NodeRemoved) as error:
            if error.replica != self._ledger.replica:
                raise
            # It is this node that stops, not whoever called.
            self._on_halt(error)
            raise Unavailable(f"{self._ledger.replica.node} has stopped: {error}") from error
        data = pack(reply, self._token)
        self._traffic.got(node, message.rows, len(call.body))
        self._traffic.sent(node, reply.rows, len(data))
        yield data

    def _upsert_many(self, said: dict[str, Any]) -> dict[str, list[int]]:
        deltas = said.get("deltas")
        if not isinstance(deltas, dict):
            raise InvalidInput("`deltas` is an object: names and whole numbers")
        numbers = [_whole(deltas, name) for name in deltas]
        return {"values": self._ledger.upsert_many(list(deltas), numbers).tolist()}

    def _update_ttl(self, said: dict[str, Any]) -> None:
        when = said.get("when")
        try:
            found = None if when is None else datetime.fromisoformat(when)
        except (TypeError, ValueError):
            raise InvalidInput(f"{shown(when)} is no time such as 2026-11-16T12:00:00Z") from None
        self._ledger.update_ttl(_name(said), found)

    def _parts(self, said: dict[str, Any]) -> dict[str, Any]:
        parts: dict[str, int] = {}
        for replica, value in self._ledger.parts(_name(said)).items():
            parts[replica.node] = parts.get(replica.node, 0) + value
        return {"parts": parts}

    def _nodes(self, _: dict[str, Any]) -> dict[str, Any]:
        found = self._ledger.nodes().items()
        return {
            "node": self._ledger.replica.node,
            "nodes": [
                {"node": one.node, "is_removed": state.is_removed, "behind": state.behind}
                for one, state in found
            ],
        }


def _said(body: pa.Buffer) -> dict[str, Any]:
    if len(body) > COMMAND_BYTES_MAX:
        raise TooLarge(f"a command has at most {COMMAND_BYTES_MAX:,} bytes")
    try:
        found = json.loads(body.to_pybytes() or b"{}")
    except (ValueError, RecursionError):
        raise InvalidInput("a command is a JSON object") from None
    if not isinstance(found, dict):
        raise InvalidInput("a command is a JSON object")
    return found


def _name(said: dict[str, Any]) -> str:
    return _text(said, "name")


def _text(said: dict[str, Any], what: str) -> str:
    found = said.get(what)
    if not isinstance(found, str):
        raise InvalidInput(f"`{what}` is missing, or is no text")
    return found


def _whole(said: dict[str, Any], what: str) -> int:
    found = said.get(what)
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidInput(f"`{what}` is missing, or is no whole number")
    return found
