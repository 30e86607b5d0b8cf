"""The counters of a node that runs elsewhere, for a client that is no node itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.tls import Tls
from tidemill.errors import BadMessage

_TIMEOUT_S = 10.0

Taken = TypeVar("Taken")


class RemoteCounters(Closing):
    """Calls one node; each call is one round trip, and raises what the node raises.

    >>> import tidemill as tm
    >>> with tm.Counters("node-1", listen="127.0.0.1:0") as counters:
    ...     with RemoteCounters(counters.address) as remote:
    ...         remote.upsert("visits", 3), remote.get("visits")
    (3, 3)
    """

    def __init__(
        self, address: str, *, tls: Tls | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        credentials = None if tls is None else tls.read()
        self._caller = Caller(Address.of(address), credentials, timeout_s=timeout_s)

    def get(self, name: str) -> int:
        return self._number("get", name=name)

    def upsert(self, name: str, delta: int = 1) -> int:
        return self._number("upsert", name=name, delta=delta)

    def update_ttl(self, name: str, when: datetime | None) -> None:
        self._call("update-ttl", _done, name=name, when=None if when is None else when.isoformat())

    def delete(self, name: str) -> None:
        self._call("delete", _done, name=name)

    def all(self) -> tuple[dict[str, int], dict[str, int]]:
        return self._call("all", lambda found: (_sums(found["live"]), _sums(found["expired"])))

    def parts(self, name: str) -> dict[str, int]:
        return self._call("parts", lambda found: _sums(found["parts"]), name=name)

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that the node knows of: who is removed, and how far each is behind it."""
        return self._call("nodes", lambda found: [_node(one) for one in found["nodes"]])

    def remove_node(self, node: str) -> None:
        self._call("remove-node", _done, node=node)

    def close(self) -> None:
        self._caller.close()

    def _number(self, action: str, **said: Any) -> int:
        return self._call(action, lambda found: _whole(found["value"]), **said)

    def _call(self, action: str, take: Callable[[Any], Taken], **said: Any) -> Taken:
        """What `take` finds in the answer; whatever it stumbles over is none of a node."""
        answers = self._caller.call(action, json.dumps(said).encode())
        try:
            (answer,) = answers
            return take(json.loads(answer.to_pybytes()))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise BadMessage(f"{self._caller.address} gave no answer of a node") from error


def _done(found: object) -> None:
    if found is not None:
        raise TypeError(type(found))


def _whole(found: object) -> int:
    if type(found) is not int:
        raise TypeError(type(found))
    return found


def _sums(found: Any) -> dict[str, int]:
    if not all(name.isprintable() for name in found):
        raise ValueError("a name is none")
    return {name: _whole(value) for name, value in found.items()}


def _node(found: Any) -> dict[str, Any]:
    """As a node has it, so that whoever shows it finds what they look for."""
    if type(found["node"]) is not str or type(found["is_removed"]) is not bool:
        raise TypeError(type(found["node"]))
    _whole(found["behind"])
    if not found["node"].isprintable():
        raise ValueError("a name is none")
    return dict(found)
