"""The receiver of a consumer: reads ahead, gives rows in order, and keeps what is acked.

    store ──reader thread──▶ read ahead, bounded in bytes ──▶ receive, in order ──▶ ack, any order
                                                                                       │
    store ◀──keeper thread── the newest pointer, as soon as it has moved ◀── window ◀──┘

Both threads start when they are first needed and end with `close()`. The keeper stores the newest
pointer, at most so often a second: acks that come meanwhile share the next time. So the last ack is
stored without another, no ack waits for a disk, and storing leaves the disk to those who send. The
reader looks now and then whether a newer receiver has taken over, since one that waits has no acks
by which it would hear of it.

Invariant: the store is never called under the receiver's lock, for it calls back under its own.
"""

from __future__ import annotations

import copy
import threading
from collections import deque
from collections.abc import Callable
from types import TracebackType

from tidemill.batch import LogBatch
from tidemill.clock import Clock, SystemClock, wait_seconds
from tidemill.closing import Closing
from tidemill.errors import Closed, Fenced, InvalidInput, TidemillError, Trimmed
from tidemill.held_condition import HeldCondition
from tidemill.limits import PREFETCH_BYTES, RECEIVED_ROWS_MAX
from tidemill.log.ack_pace import AckPace
from tidemill.log.ack_window import AckWindow
from tidemill.log.contract import LogStore
from tidemill.log.ending import see_through_at_exit
from tidemill.log.home import Home
from tidemill.log.merging import merge_small
from tidemill.log.own_thread import OwnThread, failure_of
from tidemill.log.refusals import passed_over
from tidemill.log.start import Start, start_seq
from tidemill.shown import shown


class Received(LogBatch):
    """Rows that a receiver gave, which can be acked.

    >>> import tidemill as tm
    >>> with tm.Log("memory:doc-received") as log:
    ...     receipt = log.publisher().send([b"a", b"b"])
    ...     with log.receiver("billing", follow=False) as receiver:
    ...         for batch in receiver:
    ...             batch.ack()
    ...     log.consumers()
    {'billing': 2}
    """

    __slots__ = ("_receiver",)

    def __init__(self, batch: LogBatch, receiver: Receiver) -> None:
        super().__init__(batch.payload, batch.first_seq, batch._times)
        self._receiver = receiver

    def ack(self) -> None:
        """All rows of the batch are done."""
        self._receiver.ack(self.first_seq, self.last_seq)


class Receiver(Closing):
    """Gives a consumer its rows, in order. Made by `Log.receiver()`.

    A consumer has one receiver at a time: a newer one fences the older, which then raises
    `tm.Fenced`, also while it waits. `ack` may be called from any thread. Use it in `with`, or
    call `close()`.

    >>> import tidemill as tm
    >>> log = tm.Log("memory:doc-receiver")
    >>> receipt = log.publisher().send([b"a", b"b", b"c"])
    >>> receiver = log.receiver("billing")
    >>> batch = receiver.receive()
    >>> batch.rows(), receiver.pointer, receiver.lag
    ([b'a', b'b', b'c'], 0, 3)
    >>> receiver.ack(2), receiver.pointer
    (None, 0)
    >>> receiver.ack(1), receiver.pointer
    (None, 2)
    >>> log.close()
    """

    def __init__(
        self,
        store: LogStore,
        consumer: str,
        *,
        start: Start = "earliest",
        follow: bool = True,
        rows_max: int = RECEIVED_ROWS_MAX,
        prefetch_bytes: int = PREFETCH_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._store = store
        self._home = Home(f"the receiver of {shown(consumer)}")
        self._clock = SystemClock() if clock is None else clock
        self._rows_max = _at_least_one(rows_max, "rows_max")
        self._prefetch_bytes = _at_least_one(prefetch_bytes, "prefetch_bytes")
        first = start_seq(store, start)
        self._claim = store.claim_consumer(consumer, start=first)
        self._window = AckWindow(self._claim.pointer)
        self._stored = self._claim.pointer
        self._at = self._claim.pointer + 1  # what is read next
        self._given = self._claim.pointer  # the last row that was given
        self._end = None if follow else store.ends().next
        self._mutex = threading.RLock()
        self._changed = HeldCondition(self._mutex)
        self._pace = AckPace(self._mutex, self._clock)
        self._ahead: deque[LogBatch] = deque()
        self._ahead_bytes = 0
        self._news = 0  # how often the store told of new rows, or somebody asked
        self._looks = 0  # how often the reader began to read
        self._looked = 0  # the last time it came to an end with it
        self._is_finished = False  # there is nothing more to read
        self._poll_s: float | None = None  # the next pause, if there was nothing for a while
        # How often to see whether the claim still counts, and when to do it again.
        capabilities = store.capabilities
        self._check_s = max(capabilities.poll_s_max, capabilities.poll_s or 0.0)
        self._check_at_s = self._clock.monotonic_s() + self._check_s
        self._is_closed = False
        self._has_ended = False  # closed, and nothing more is stored
        self._read_failure: TidemillError | None = None  # raised behind the last row read
        self._ack_failure: TidemillError | None = None  # raised by everything
        self._listeners: list[Callable[[], None]] = []
        self._reader = OwnThread(self._mutex, "tidemill-receiver")
        self._keeper = OwnThread(self._mutex, "tidemill-acks")
        self._unwatch: Callable[[], None] = store.watch(self._hear)
        see_through_at_exit(self)

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self._claim.name

    @property
    def pointer(self) -> int:
        """All rows up to this number are acked; `flush()` waits until that is stored."""
        return self._window.pointer

    @property
    def lag(self) -> int:
        """How many rows there are behind the pointer."""
        return max(0, self._store.ends().next - 1 - self._window.pointer)

    def receive(self, wait_s: float | None = None) -> Received | None:
        """The next rows; None if there are none within `wait_s` seconds, or ever.

        Without `wait_s` it waits for as long as it takes. A receiver with `follow=False` has an
        end, where it gives None.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-receive") as log:
        ...     log.receiver("billing").receive(wait_s=0) is None
        True
        """
        self._home.check()
        seconds = None if wait_s is None else wait_seconds(wait_s)
        deadline_s = None if seconds is None else self._clock.monotonic_s() + seconds
        batch: Received | None = None
        try:
            with self._mutex:
                # Who waits without an end hears of rows as soon as the reader, who looks anyway.
                look = 0 if wait_s is None else self._ask()
                while (batch := self._take()) is None and not self._is_finished:
                    left_s = None if deadline_s is None else deadline_s - self._clock.monotonic_s()
                    if left_s is not None and left_s <= 0:
                        # Whatever the time: rows that were there before the call are given.
                        if self._looked >= look:
                            return None
                        left_s = None
                    self._clock.wait(self._changed, left_s)
            return batch
        except BaseException:
            if batch is not None:
                self._put_back(batch)
            raise

    def ask(self) -> int:
        """Have the reader look at the log once more; `poll` tells when it has."""
        self._home.check()
        with self._mutex:
            return self._ask()

    def poll(self, look: int) -> tuple[Received | None, bool, bool]:
        """What is there of the next rows without waiting, whether there is more to come, and
        whether the reader has looked since `ask` gave the number of that look.
        """
        with self._mutex:
            batch = self._take()
            return batch, batch is not None or not self._is_finished, self._looked >= look

    def listen(self, listener: Callable[[], None]) -> None:
        """Call `listener` when `poll` may have something new to say; under a lock, so that it must
        not block.
        """
        with self._mutex:
            self._listeners.append(listener)

    def __iter__(self) -> Receiver:
        return self

    def __next__(self) -> Received:
        self._home.check()
        try:
            batch = self.receive()
        except Closed:
            raise StopIteration from None  # Closed by another thread: so ends a loop that follows.
        if batch is None:
            self.flush()  # Whoever looks behind the loop finds what was acked in it.
            raise StopIteration
        return batch

    def ack(self, seq: int, last: int | None = None) -> None:
        """Row `seq` is done, or all rows from `seq` to `last`; in any order, from any thread.

        The pointer moves to the end of the longest acked prefix, and is stored soon after. What
        was acked before changes nothing.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-ack") as log:
        ...     receipt = log.publisher().send([b"a", b"b"])
        ...     receiver = log.receiver("billing")
        ...     batch = receiver.receive()
        ...     receiver.ack(1, 2)
        ...     receiver.flush()
        ...     log.consumers()
        {'billing': 2}
        """
        last = seq if last is None else last
        for number in (seq, last):
            if not isinstance(number, int) or isinstance(number, bool):
                raise InvalidInput(f"a row is acked by its number, not by {shown(number)}")
        if last < seq:
            raise InvalidInput(
                f"rows are acked from the lower number on, not {shown(seq)} to {shown(last)}"
            )
        self._home.check()
        with self._mutex:
            self._check()
            if last > self._given:
                raise InvalidInput(
                    f"row {shown(last)} cannot be acked: the last that was given is {self._given}"
                )
            # First: without a keeper nothing may be taken for acked.
            self._keeper.start(self._keep)
            try:
                if self._window.ack(seq, last):
                    self._pace.acked()
            except BaseException:
                self._pace.acked()  # An interrupt may have come between.
                raise

    def flush(self) -> None:
        """Return once the pointer is stored."""
        self._home.check()
        with self._mutex, self._pace.hurried():
            until = self._window.pointer
            while self._stored < until:
                self._check()
                self._changed.wait()

    def see_through(self) -> None:
        """The interpreter ends: store what was acked."""
        if self._home.is_here and not self._is_closed:
            self.flush()

    def close(self) -> None:
        """Store what was acked, and end; twice does no harm.

        Raises what stopped acks from being stored: `tm.Fenced`, if a newer receiver took over.
        """
        if not self._home.is_here:
            return
        with self._mutex:
            if self._has_ended:
                return
            self._is_closed = True
            self._ahead.clear()
            self._pace.hurry()
            self._tell()
        self._unwatch()
        self._reader.join()
        self._keeper.join()
        self._has_ended = True
        if self._ack_failure is not None and self._stored < self._window.pointer:
            raise copy.copy(self._ack_failure) from self._ack_failure

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except TidemillError:
            if error is None:
                raise

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Receiver of {self.consumer!r} at {self.pointer}{state}>"

    def _ask(self) -> int:
        self._news += 1
        self._changed.notify_all()
        return self._looks + 1

    def _take(self) -> Received | None:
        """The next rows, if they are there; raises what stands in their way. Under the lock."""
        self._check()
        if not self._ahead:
            if self._read_failure is not None:
                raise copy.copy(self._read_failure) from self._read_failure
            self._reader.start(self._read_ahead)
            return None
        batch = Received(self._ahead[0], self)
        size, given = batch.payload.nbytes, max(self._given, batch.last_seq)
        self._changed.notify_all()
        # Last, and with nothing called behind it: an interrupt leaves the rows to the next call.
        self._ahead_bytes -= size
        self._given = given
        del self._ahead[0]
        return batch

    def _put_back(self, batch: Received) -> None:
        """Whoever took these rows was interrupted: the next call gives them."""
        with self._mutex:
            self._ahead_bytes += batch.payload.nbytes
            self._ahead.appendleft(batch)
            self._tell()

    def _tell(self) -> None:
        """Let everybody look again. Called under the lock."""
        self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def _hear(self) -> None:
        """The store has new rows. Called under its locks."""
        with self._mutex:
            self._ask()

    def _check(self) -> None:
        if self._ack_failure is not None:
            raise copy.copy(self._ack_failure) from self._ack_failure
        if self._is_closed:
            raise Closed(f"the receiver of {self.consumer!r} was closed; open a new one")

    def _read_ahead(self) -> None:
        failure = failure_of(self._read_some)
        if isinstance(failure, Trimmed):
            failure = passed_over(self.consumer, self._at, failure)
        with self._mutex:
            if isinstance(failure, Fenced):
                self._ack_failure = self._ack_failure or failure  # What was read ahead is not ours.
            self._read_failure = failure
            self._is_finished = True
            self._tell()

    def _keep(self) -> None:
        failure = failure_of(self._store_pointer)
        with self._mutex:
            self._ack_failure = failure
            self._tell()

    def _read_some(self) -> bool:
        """Read the next rows, or wait for them; False when it is over."""
        with self._mutex:
            news = self._news
        self._check_claim()
        with self._mutex:
            if self._is_closed:
                return False
            if self._ahead_bytes >= self._prefetch_bytes:
                if self._news == news:
                    self._clock.wait(self._changed, self._check_s or None)
                return True
            self._looks = look = self._looks + 1
            room = self._prefetch_bytes - self._ahead_bytes
        rows_max = self._rows_max
        if self._end is not None:
            rows_max = min(rows_max, self._end - self._at)
        batches: list[LogBatch] = []
        if rows_max > 0:
            batches = self._store.read(self._at, rows_max=rows_max, bytes_max=room)
        merged = merge_small(batches)
        with self._mutex:
            self._looked = look
            if merged:
                self._ahead += merged
                self._ahead_bytes += sum(batch.payload.nbytes for batch in merged)
                self._at = merged[-1].next_seq
                self._poll_s = None
            elif self._end is not None:
                self._is_finished = True
            self._tell()
            if not merged and self._news == news and not self._is_closed and not self._is_finished:
                self._pause()
            return not self._is_finished

    def _check_claim(self) -> None:
        """See whether the claim still counts, but no more often than one looks for rows."""
        now_s = self._clock.monotonic_s()
        if now_s >= self._check_at_s:
            self._check_at_s = now_s + self._check_s
            self._store.check_claim(self._claim)

    def _pause(self) -> None:
        """Wait for news, or until it is time to look again: later each time. Called under the
        lock.
        """
        capabilities = self._store.capabilities
        poll_s = capabilities.poll_s if self._poll_s is None else self._poll_s
        self._clock.wait(self._changed, poll_s)
        if poll_s is not None:
            self._poll_s = min(2 * poll_s, max(poll_s, capabilities.poll_s_max))

    def _store_pointer(self) -> bool:
        """Store the newest pointer, or wait until it has moved; False when it is over."""
        with self._mutex:
            while self._stored == self._window.pointer and not self._is_closed:
                if self._end is not None and self._stored >= self._end - 1:
                    return False  # Whoever receives up to an end may never close this.
                self._pace.wait()
            self._pace.pause()
            pointer = self._window.pointer
            if self._stored == pointer:
                return False
        self._store.move_pointer(self._claim, pointer)
        with self._mutex:
            self._stored = pointer
            self._changed.notify_all()
        return True


def _at_least_one(number: int, what: str) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise InvalidInput(f"{what} is a whole number from 1 on, not {shown(number)}")
    return number
