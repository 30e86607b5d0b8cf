"""The link to one peer: a thread that exchanges what either side lacks, again and again.

    due? ──▶ what the peer lacks, or only what we hold ──▶ call ──▶ merge its answer ──▶ wait
      ▲                                                     │
      └────────────── after `reconnect_ms` ◀── failed ──────┘   nothing is lost: it is sent again

One exchange serves both directions, so that a link from either side is enough. After a failure
the peer is greeted anew and asked what it holds: it may have been started again, without its state.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from tidemill.closing import Closing
from tidemill.counters import Ledger, Replica
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.parcel import pack, unpack
from tidemill.counters.replication.traffic import Traffic
from tidemill.errors import BadMessage, DuplicateNode, NodeRemoved, TidemillError
from tidemill.held_condition import HeldCondition

logger = logging.getLogger(__name__)

EXCHANGE = "exchange"
_CLOSE_S_MAX = 1.0  # for which the end of a round is waited for
_EXCHANGES_MAX = 4  # of one round: greet, send, and again if the peer was restarted in between


class Link(Closing):
    """Keeps one peer up to date, and this node with it."""

    def __init__(
        self,
        caller: Caller,
        ledger: Ledger,
        traffic: Traffic,
        token: bytes,
        *,
        sync_ms: int,
        reconnect_ms: int,
        on_halt: Callable[[TidemillError], None],
    ) -> None:
        self._caller = caller
        self._ledger = ledger
        self._traffic = traffic
        self._token = token
        self._sync_s = sync_ms / 1000
        self._reconnect_s = reconnect_ms / 1000
        self._on_halt = on_halt
        self._peer: Replica | None = None  # who answered last; None: greet first
        self._name = str(caller.address)  # of the peer, its address until it has told its id
        self._is_away = False
        self._told = ""  # the failure that was logged last
        self._mutex = threading.RLock()
        self._changed = HeldCondition(self._mutex)
        self._asked = 0  # rounds that somebody asked for, and …
        self._done = 0  # … those that have ended, by the number that was asked for
        self._outcome = "ok"  # of the last round
        self._is_closing = False
        self._thread = threading.Thread(
            target=self._run, name=f"tidemill-link {caller.address}", daemon=True
        )

    @property
    def address(self) -> Address:
        return self._caller.address

    @property
    def is_away(self) -> bool:
        """Whether the peer did not answer last."""
        return self._is_away

    def start(self) -> None:
        self._thread.start()

    def ask(self) -> int:
        """Have a round at once; returns the number to wait for."""
        with self._mutex:
            self._asked += 1
            self._changed.notify_all()
            return self._asked

    def wait(self, number: int, timeout_s: float) -> str:
        """How the round that was asked for ended: `ok`, or the name of an error."""
        with self._mutex:
            ended = self._changed.wait_for(
                lambda: self._done >= number or self._is_closing, timeout_s
            )
            return self._outcome if ended and self._done >= number else "Unavailable"

    def stop(self) -> None:
        """Begin no more rounds."""
        with self._mutex:
            self._is_closing = True
            self._changed.notify_all()

    def close(self) -> None:
        """End the thread. One that waits for a silent peer is left to itself: whatever is answered
        there is not taken any more.
        """
        self.stop()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S_MAX)

    def _run(self) -> None:
        try:
            self._keep_up()
        finally:
            self._meet(None)
            self._take_leave()
            self._caller.close()

    def _keep_up(self) -> None:
        due_s = time.monotonic()
        while True:
            with self._mutex:
                self._changed.wait_for(
                    lambda: self._is_closing or self._asked > self._done,
                    max(0.0, due_s - time.monotonic()),
                )
                if self._is_closing:
                    return
                number = self._asked
            outcome = self._round()
            pause_s = self._sync_s if outcome == "ok" else max(self._sync_s, self._backoff_s())
            due_s = time.monotonic() + pause_s
            with self._mutex:
                self._done, self._outcome = number, outcome
                self._changed.notify_all()

    def _backoff_s(self) -> float:
        # Those who lost the same peer at the same time do not all come back at the same time.
        return self._reconnect_s * random.uniform(0.8, 1.2)

    def _round(self) -> str:
        """Exchange until both hold the same, and say how that ended."""
        start_s = time.monotonic()
        is_ours = False
        try:
            is_ours = not self._exchange()
        except (DuplicateNode, NodeRemoved) as error:
            if error.replica in (None, self._ledger.replica):
                # Said by the peer, or found out here: it is this node that must not go on.
                self._on_halt(error)
            outcome = self._failed(error)
        except TidemillError as error:
            outcome = self._failed(error)
        except Exception as error:
            # A thread that ended in silence would leave the peer behind for ever.
            logger.exception("a fault of ours in the link to %s", self.address)
            outcome = self._failed(error)
        else:
            self._told = ""
            self._is_away = False
            outcome = "ok"
        if is_ours:
            # A node is no peer of its own, which would look as if one were not connected.
            self._take_leave()
            return outcome
        self._traffic.round_ended(
            self._name,
            outcome,
            time.monotonic() - start_s,
            is_connected=self._peer is not None,
        )
        return outcome

    def _exchange(self) -> bool:
        """False if the address is our own: one list of all nodes, for all of them, has it."""
        for number in range(_EXCHANGES_MAX):
            before = self._peer
            request = None if before is None else self._ledger.outgoing(before)
            if request is None and number:
                break
            message = request or self._ledger.hello()
            data = pack(message, self._token, None if request is None else before)
            answers = self._caller.call(EXCHANGE, data)
            if not answers:
                return False
            if len(answers) != 1:
                raise BadMessage(f"{self.address} answered with {len(answers)} messages, not one")
            reply = unpack(answers[0]).message
            if self._is_closing:
                break
            self._ledger.receive(reply)
            self._meet(reply.sender)
            self._call_it(reply.sender.node)
            self._traffic.sent(self._name, message.rows, len(data))
            self._traffic.got(self._name, reply.rows, len(answers[0]))
            if before == self._peer:
                # What came back is acked by whatever is said next.
                break
        return True

    def _call_it(self, node: str) -> None:
        """Count what follows as traffic with this node, who is the first or another to answer."""
        if self._name == node:
            return
        if self._name == str(self.address):
            self._traffic.rename(self._name, node)
        else:
            # What went to whoever had the address before did not go to this one.
            self._traffic.called_no_more(self._name)
        self._name = node

    def _take_leave(self) -> None:
        """What was counted with a peer stays, but not what never had one."""
        self._traffic.called_no_more(self._name)
        if self._name == str(self.address):
            self._traffic.forget(self._name)

    def _meet(self, peer: Replica | None) -> None:
        """Note who answers. What is known of a reader that went away is of no use to anybody."""
        if self._peer not in (None, peer):
            self._ledger.forget_reader(self._peer)
        self._peer = peer

    def _failed(self, error: Exception) -> str:
        self._meet(None)
        self._is_away = True
        self._caller.reconnect()
        words = str(error)
        if words != self._told and not self._is_closing:
            logger.warning("no exchange with %s: %s", self.address, words)
        self._told = words
        return type(error).__name__
