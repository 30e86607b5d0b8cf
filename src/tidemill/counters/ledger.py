"""A replica with a disk and locks: what the threads of a program count with.

Two locks. `_mutex` guards the node and is held for moments, so that counting never waits for a
disk. `_order` is held by whoever saves, merges or makes a message, in that order: seal, make the
message, save, and only then let it go.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from tidemill.clock import Clock, SystemClock
from tidemill.closing import Closing
from tidemill.counters.intervals import check_interval_ms
from tidemill.counters.journal import Journal
from tidemill.counters.message import Ints, Message
from tidemill.counters.node import Node, NodeState
from tidemill.counters.replica import Replica, new_replica
from tidemill.counters.ttl import datetime_of, us_of
from tidemill.errors import Closed, Fenced, InvalidInput, SurroundingsError, TidemillError
from tidemill.event import Event
from tidemill.files.disk.filesystem import FileSystem
from tidemill.limits import SEGMENT_BYTES
from tidemill.names import check_name

logger = logging.getLogger(__name__)

SAVE_MS = 100
_RETRY_S = 1.0


class Ledger(Closing):
    """The counters of one node. All methods may be called from many threads.

    >>> with Ledger("node-1", path="counters") as ledger:
    ...     ledger.upsert("visits", 100)
    100
    >>> with Ledger("node-1", path="counters") as ledger:
    ...     ledger.get("visits"), ledger.upsert("visits", -1)
    (100, 99)
    """

    def __init__(
        self,
        node: str,
        *,
        path: str | os.PathLike[str] | None = None,  # None: what is counted ends with the process
        read_only: bool = False,  # it shows what others count, and keeps nothing
        save_ms: int = SAVE_MS,  # how long an upsert may be in memory alone
        clock: Clock | None = None,
        file_system: FileSystem | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        check_name(node, what="node")
        check_interval_ms("save_ms", save_ms)
        if read_only and path is not None:
            raise InvalidInput("a read-only replica keeps nothing: give it no path")
        clock = SystemClock() if clock is None else clock
        self._journal: Journal | None = None
        replica = new_replica(node)
        if path is None:
            self._node = Node(replica, now_ns=clock.time_ns, is_reader=read_only)
        else:
            self._journal = Journal(
                path, clock=clock, file_system=file_system, segment_bytes=segment_bytes
            )
            try:
                self._node = _taken_up(self._journal, replica, clock)
            except BaseException:
                self._journal.close()
                raise
        self.replica = self._node.replica
        self._mutex = threading.Lock()
        self._order = threading.Lock()
        self._unwritten: list[Message] = []  # sealed, and not on disk
        self._is_torn = False  # something may have been sealed that is not among them
        self._failure: TidemillError | None = None  # of the last save
        self._updates = 0
        self._is_closed = False
        self._is_due = False  # something waits to be saved
        self._due = Event()
        self._ending = Event()
        self._save_s = save_ms / 1_000
        self._saver: threading.Thread | None = None
        _ledgers.add(self)
        try:
            with self._order:
                self._save()
            if self._journal is not None:
                self._saver = threading.Thread(
                    target=_save_when_due,
                    args=(weakref.ref(self),),
                    name="counters-saver",
                    daemon=True,
                )
                self._saver.start()
        except BaseException:
            self._ending.set()
            self._due.set()
            if self._journal is not None:
                self._journal.close()
            raise

    def upsert(self, name: str, delta: int = 1) -> int:
        """Add to a counter, which is made if it is not there, and return its new value."""
        with self._mutex:
            value = self._node.upsert(name, delta)
            if not self._is_due:
                self._set_due()
            return value

    def upsert_many(
        self, names: Sequence[str] | pa.Array, deltas: int | Sequence[int] | Ints | pa.Array = 1
    ) -> Ints:
        """Add to many counters, to all or none; each row gets its counter's value afterwards.

        >>> ledger = Ledger("node-1")
        >>> ledger.upsert_many(["a", "b", "a"], [1, 10, 2]).tolist()
        [3, 10, 3]
        """
        with self._mutex:
            values = self._node.upsert_many(names, deltas)
            self._set_due()
            return values

    def get(self, name: str) -> int:
        """The value of a counter: what was counted here, and what arrived here."""
        with self._mutex:
            self._check()
            return self._node.get(name)

    def delete(self, name: str) -> None:
        """Let a counter be no more."""
        with self._mutex:
            self._node.delete(name)
            self._set_due()

    def update_ttl(self, name: str, when: datetime | None) -> None:
        """Let a counter expire then, or never.

        >>> from datetime import UTC
        >>> ledger = Ledger("node-1")
        >>> ledger.upsert("tries"), ledger.update_ttl("tries", datetime(2020, 1, 1, tzinfo=UTC))
        (1, None)
        >>> ledger.all()
        ({}, {'tries': 1})
        """
        time_us = None if when is None else us_of(when)
        with self._mutex:
            self._node.update_ttl(name, time_us)
            self._set_due()

    def expiry(self, name: str) -> datetime | None:
        """When a counter expires, or expired; None: it does not."""
        with self._mutex:
            self._check()
            time_us = self._node.expiry_us(name)
        return None if time_us is None else datetime_of(time_us)

    def all(self) -> tuple[dict[str, int], dict[str, int]]:
        """The counters that live, and those that expired and are not deleted yet."""
        with self._mutex:
            self._check()
            return self._node.all()

    def parts(self, name: str) -> dict[Replica, int]:
        """What each replica counted."""
        with self._mutex:
            self._check()
            return self._node.parts(name)

    @property
    def updates(self) -> int:
        """Counters that changed since the last message was made."""
        with self._mutex:
            return self._updates + self._node.changed_counters

    def hello(self) -> Message:
        """The first message to a peer: what this replica holds."""
        with self._order:
            return self._hello()

    def outgoing(self, peer: Replica) -> Message | None:
        """What a peer lacks; None if it lacks nothing. It is saved here before it is returned."""
        with self._order:
            return self._made(peer)

    def answer(self, message: Message) -> Message:
        """Take what a peer sent, save it, and say so; with what the peer lacks in turn."""
        with self._order:
            self._receive(message)
            return self._made(message.sender) or self._hello()

    def receive(self, message: Message) -> None:
        """Take what a peer answered."""
        with self._order:
            self._receive(message)

    def collect(self) -> int:
        """Delete what expired, and drop what is dead everywhere; the number of dropped parts."""
        with self._order, self._mutex:
            self._check()
            dropped = self._node.collect()
            self._set_due()
            return dropped

    def remove_node(self, node: str) -> None:
        """Wait for a node no longer, and take nothing from it. What it counted stays."""
        with self._mutex:
            self._node.remove_node(node)
            self._set_due()

    def nodes(self) -> dict[Replica, NodeState]:
        """What is known of the other replicas."""
        with self._mutex:
            return self._node.nodes()

    def forget_reader(self, reader: Replica) -> None:
        """A read-only replica went away."""
        with self._mutex:
            self._node.forget_reader(reader)

    @property
    def fenced(self) -> Fenced | None:
        """Why nothing can be saved here ever again; None while it can, or may later."""
        return self._failure if isinstance(self._failure, Fenced) else None

    def save(self) -> None:
        """Have everything on disk that was counted or received so far; `close` has seen to it."""
        with self._order:
            if not self._is_closed:
                self._save()

    def close(self) -> None:
        """Save, and let go of the folder. Nothing can be counted afterwards. A close that was
        interrupted has let go of nothing that is not saved, and is to be repeated.
        """
        with self._order:
            if not self._is_closed:
                try:
                    with self._mutex:
                        # Before the save, or what is counted during it would be lost.
                        self._node.refuse(Closed("the counters were closed; open them again"))
                    self._save()
                except Exception:
                    self._let_go()
                    raise
                self._let_go()
        if self._saver is not None:
            self._saver.join()

    def _let_go(self) -> None:
        self._ending.set()
        self._due.set()
        if self._journal is not None:
            self._journal.close()
        self._is_closed = True

    def _receive(self, message: Message) -> None:
        with self._mutex:
            self._check()
            self._node.receive(message)
            self._set_due()

    def _hello(self) -> Message:
        with self._mutex:
            self._check()
            self._seal()
            message = self._node.hello()
        self._write()
        return message

    def _made(self, peer: Replica) -> Message | None:
        """Under `_order`: no turn is closed between sealing and making, nor saved out of turn."""
        with self._mutex:
            self._check()
            self._seal()
            message = self._node.delta(peer)
            self._updates = 0
        self._write()
        return message

    def _save(self) -> None:
        with self._mutex:
            self._seal()
        self._write()

    def _seal(self) -> None:
        """Under both locks. Peers hear of a turn that is closed, so that it must not get lost."""
        was_torn, self._is_torn = self._is_torn, True
        try:
            sealed = self._node.seal()
            if was_torn:
                # An interrupt took away what the turn before had changed; so all is saved.
                sealed = self._node.snapshot()
        except Exception as error:
            self._is_torn = was_torn
            if self._journal is not None:
                self._fail(error)
            raise
        if sealed is not None:
            if self._journal is not None:
                self._unwritten.append(sealed)
            self._updates += sealed.rows
        self._is_torn = False

    def _write(self) -> None:
        """Under `_order`: what is sealed goes to the disk, in order. If it cannot, nothing is
        counted here until it can.
        """
        journal = self._journal
        if journal is None:
            return
        try:
            while self._unwritten:
                journal.append(self._unwritten[0])
                del self._unwritten[0]
        except Exception as error:
            with self._mutex:
                self._fail(error)
            raise
        with self._mutex:
            if self._failure is not None and self._node.refusal is self._failure:
                self._node.refusal = None
            self._failure = None
            is_all = not self._node.is_unsealed
            if is_all:
                # Not before: what could not be saved, for whatever reason, stays due.
                self._is_due = False
                self._due.clear()
        if is_all and journal.is_long:
            self._shorten(journal)

    def _shorten(self, journal: Journal) -> None:
        """Under `_order`. All is saved; where that cannot be done in less room, it stays so."""
        try:
            with self._mutex:
                snapshot = None if self._node.is_unsealed else self._node.snapshot()
            if snapshot is not None:
                journal.rewrite(snapshot)
        except Exception as error:
            words = "the folder of counters is longer than it need be: no snapshot was written: %s"
            logger.warning(words, error, exc_info=not isinstance(error, TidemillError))

    def _fail(self, error: Exception) -> None:
        """Under both locks: nothing is counted that would not be saved."""
        if not isinstance(error, TidemillError):
            failure = SurroundingsError(
                f"counters could not be saved, and nothing is counted until they are: {error!r}"
            )
            failure.__cause__ = error
            error = failure
        # A refusal for another reason stays, and is not lifted when this one is.
        is_ours = self._node.refusal is self._failure
        self._failure = error
        if is_ours:
            self._node.refuse(error)

    def _set_due(self) -> None:
        self._due.set()
        self._is_due = True  # Last: else an interrupt in between would leave nobody told.

    def _check(self) -> None:
        if self._is_closed:
            raise Closed("the counters were closed; open them again")

    def _refuse_in_child(self) -> None:
        """The parent of this forked process counts; locks may be held by threads that are gone."""
        self._mutex, self._order = threading.Lock(), threading.Lock()
        self._is_closed = True
        self._saver = None
        self._journal = None
        self._node.refuse(Closed("the counters belong to the parent of this process"))


def _taken_up(journal: Journal, replica: Replica, clock: Clock) -> Node:
    """The replica that the journal holds, or a new one if it holds none."""
    node: Node | None = None
    for message in journal.read():
        if node is None:
            if message.sender.node != replica.node:
                raise InvalidInput(
                    f"the folder holds the counters of node {message.sender.node!r}, "
                    f"not of {replica.node!r}"
                )
            node = Node(message.sender, now_ns=clock.time_ns)
        node.load(message)
    return Node(replica, now_ns=clock.time_ns) if node is None else node


def _save_when_due(ledger_ref: weakref.ref[Ledger]) -> None:
    """The thread that saves. It holds no reference while it waits, so that a ledger nobody uses any
    more can go; what waits on an event is that event alone.
    """
    ledger = ledger_ref()
    if ledger is None:
        return
    due, ending, wait_s = ledger._due, ledger._ending, ledger._save_s
    pause_s = wait_s
    while True:
        del ledger
        due.wait()
        if ending.wait(pause_s):
            return
        ledger = ledger_ref()
        if ledger is None:
            return
        try:
            ledger.save()
            pause_s = wait_s
        except Exception as error:
            # Whatever it is: a thread that ended here would leave everything unsaved from then on.
            if ledger._is_closed:
                return
            logger.error(
                "counters are not saved, and nothing is counted until they are: %s",
                error,
                exc_info=not isinstance(error, TidemillError),
            )
            if ledger.fenced is not None:
                return
            ledger._due.set()
            pause_s = _RETRY_S


_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def _after_fork() -> None:
    for ledger in list(_ledgers):
        ledger._refuse_in_child()


os.register_at_fork(after_in_child=_after_fork)
