"""The consuming end of a queue: what the queue itself and each of its forks can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeAlias, TypeVar, TypeVarTuple, Unpack

import pyarrow as pa

from tidemill.batch import Batch
from tidemill.clock import wait_seconds
from tidemill.errors import Bug, ForkRemoved, InvalidInput, InvalidKey, ReadInProgress
from tidemill.files.commit.operation import Consume, MakeFork
from tidemill.files.folder.count import count_covered
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.merge.cursor import Cursor, Selection
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.queue.due import look_in_s
from tidemill.files.queue.read import Read
from tidemill.files.queue.shared_pops import SharedPops
from tidemill.files.readers.snapshot import Scan, Snapshot, key_bounds
from tidemill.files.shovel.shovel import check_destination, shovel
from tidemill.files.state.cut import Cut, cover_all
from tidemill.files.state.state import ROOT, ForkState
from tidemill.limits import FORKS_MAX, INT64_MAX, INT64_MIN
from tidemill.names import check_name, check_unique
from tidemill.numbers import whole_number
from tidemill.shown import shown

if TYPE_CHECKING:
    from tidemill.files.queue.fork import Fork
    from tidemill.files.queue.priority_queue import PriorityQueue
    from tidemill.files.upkeep.queue_core import QueueCore

KeyMax: TypeAlias = int | Callable[[], int] | None
Args = TypeVarTuple("Args")
T = TypeVar("T")

_NOTHING: AbstractContextManager[object] = nullcontext()


class ConsumingEnd:
    """Pops, peeks, reads and deletes; see `PriorityQueue` and `Fork`."""

    def __init__(self, core: QueueCore, cursor: Cursor) -> None:
        self._core = core
        self._cursor = cursor
        self._pops = SharedPops(self._take, cursor.lock)
        self._is_popping = False  # by a thread that pops for itself alone

    def pop(self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None) -> Batch:
        """Take the `n` items with the smallest keys; n < 0 takes all.

        `key_max` leaves greater keys alone. With `wait_s` the call waits that long for the first
        item to come. A `key_max` that is a function is asked again while waiting, as a clock in
        nanoseconds: `key_max=time.time_ns` makes a delay queue.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(3, b"c"), (1, b"a"), (2, b"b")])
        >>> queue.pop(2).rows()
        [(1, b'a'), (2, b'b')]
        >>> len(queue.pop(5, key_max=2)), len(queue)
        (0, 1)
        >>> queue.close()
        """
        rows = n if type(n) is int and n >= 0 else _rows(n)
        if key_max is None and wait_s is None:
            selection = self._past_damage(self._take_alone_or_together, rows)
        else:
            selection = self._waiting(self._take_shared, rows, key_max, wait_s)
        if selection.parts:
            self._after_take(selection.rows)
        return selection.batch

    def peek(self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None) -> Batch:
        """What `pop` would take, without taking it.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(2, b"b"), (1, b"a")])
        >>> queue.peek().rows(), len(queue)
        ([(1, b'a')], 2)
        >>> queue.close()
        """
        return self._waiting(self._select, _rows(n), key_max, wait_s).batch

    def scan(
        self,
        *,
        keys: tuple[int | None, int | None] | None = None,  # (lowest, highest), both included
        columns: list[str] | None = None,  # of seq, key, time and the payload's; None: all
    ) -> pa.RecordBatchReader:
        """All items as they stand now, in the order of pops, as Arrow batches; pops nothing.

        What is pushed or popped later does not show. The disk space of what is popped meanwhile
        comes back when the reader is exhausted, or nobody refers to it any more.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(3, b"c"), (1, b"a"), (2, b"b")])
        >>> queue.scan(keys=(2, None), columns=["key", "value"]).read_all().to_pylist()
        [{'key': 2, 'value': b'b'}, {'key': 3, 'value': b'c'}]
        >>> len(queue)
        3
        >>> queue.close()
        """
        low, high = (_key(key) for key in key_bounds(keys))
        if high < low:
            raise InvalidInput(f"scan goes from the lower key to the higher: {low} to {high}")
        self._check()
        core = self._core
        snapshot = Snapshot(core.view, self._cursor, low, high)
        return Scan(snapshot, columns, core.handle_damage).reader()

    def read(self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None) -> Read:
        """A transaction: leaving the block normally pops the items, and they stay if it raises.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(1, b"a"), (2, b"b")])
        >>> with queue.read(2) as read:
        ...     pushed = read.push([(9, b"retry " + value) for _, value in read.batch.rows()[1:]])
        >>> queue.pop(2).rows()
        [(9, b'retry b')]
        >>> queue.close()
        """
        return Read(self, _rows(n), key_max, wait_s)

    def delete(self, low: int, high: int) -> int:
        """Remove the items with keys from `low` to `high`, both included; returns how many.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(key, b"") for key in range(10)])
        >>> queue.delete(2, 4), len(queue)
        (3, 7)
        >>> queue.close()
        """
        low, high = _key(low), _key(high)
        if high < low:
            raise InvalidInput(
                f"delete goes from the lower key to the higher: {low} to {high} is empty"
            )
        return self._delete(low, high)

    def _delete(self, low: int, high: int, last: int = INT64_MAX) -> int:
        """Remove the items with these keys that have arrived by now, up to number `last`."""

        def attempt() -> int:
            self._check_not_reading()
            arrived = min(last, self._core.folder.arrived)
            cut = Cut(0, arrived, low, high, INT64_MAX)
            rows = count_covered(self._core.folder, self._cursor, cut)
            if rows:
                self._cut(cut, rows)
            return rows

        deleted = self._tolerating(attempt)
        self._after_take(deleted)
        return deleted

    def clear(self) -> int:
        """Remove everything from this end; other forks keep theirs. Returns how many items it had.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([b"a", b"b"])
        >>> queue.clear(), len(queue)
        (2, 0)
        >>> queue.close()
        """
        with self._held():
            self._check_not_reading()
            folder = self._core.folder
            with folder.guard:
                rows, arrived = self._cursor.fork.live, folder.state.arrived
            if rows:
                self._cut(cover_all(0, arrived), rows)
        self._after_take(rows)
        return rows

    def fork(self, name: str) -> Fork:
        """Split this end in two: the fork starts where this end stands, and each goes its own way.

        A fork that exists already is returned as it is.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(1, b"a"), (2, b"b")])
        >>> audit = queue.fork("audit")
        >>> queue.pop(2).rows(), audit.pop(1).rows()
        ([(1, b'a'), (2, b'b')], [(1, b'a')])
        >>> queue.close()
        """
        from tidemill.files.queue.fork import Fork  # noqa: PLC0415  A fork is a consuming end itself.

        check_name(name, what="fork")
        view = self._core.view
        # The parent is held still, so that a rewrite of its frames cannot fall between its state
        # and the fork's.
        with self._room_for_fork(name), self._held(self._core.forks_lock):
            with view.guard:
                found = self._named(name)
                id = view.state.next_fork if found is None else found.id
            if found is None:
                self._core.folder.commit(MakeFork(id, name, self._cursor.fork.id))
            return Fork(self._core, view.cursors[id])

    def shovel(
        self, destination: PriorityQueue, *, on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Move everything that is left at this end to another open queue; returns how many items.

        To each fork of the destination it is a push. Items keep key and payload, and equal keys
        their order. A crash in the middle may leave some items in both queues, never in neither.
        Until it is done, this end counts as being read; items pushed meanwhile stay.

        `on_progress` is told now and then how many items have been moved. If it raises, the shovel
        ends there: what was moved is in the other queue, and the rest here.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> other = tm.PriorityQueue(tempfile.mkdtemp())
        >>> receipt = queue.push([(2, b"b"), (1, b"a")])
        >>> queue.shovel(other), len(queue), other.pop(2).rows()
        (2, 0, [(1, b'a'), (2, b'b')])
        >>> queue.close(), other.close()
        (None, None)
        """
        self._check()
        if not isinstance(destination, ConsumingEnd) or destination._cursor.fork.id != ROOT:
            raise InvalidInput(
                f"items are moved to an open PriorityQueue, not to {shown(destination)}"
            )
        check_destination(self._core, destination._core)
        self._tolerating(self._mark_read)
        try:
            return shovel(
                self._core,
                self._cursor,
                destination._core,
                self._tolerating,
                on_progress or (lambda _moved: None),
            )
        finally:
            self._cursor.is_reading = False

    def __len__(self) -> int:
        self._check()
        return self._cursor.fork.live

    def __bool__(self) -> bool:
        # A queue is itself even when it is empty; `len(queue)` asks for the items.
        return True

    def _room_for_fork(self, name: str) -> AbstractContextManager[None]:
        """Within it there is room for a fork of this name; taken before any lock, because upkeep
        may have to make it.
        """
        self._check()
        with self._core.view.guard:
            # What is refused must not have cost anything by then.
            if self._named(name) is not None:
                return nullcontext()
        needed = MakeFork(INT64_MAX, name, INT64_MAX).total_bytes
        return self._core.room.reserved(needed)

    def _named(self, name: str) -> ForkState | None:
        """The fork of this name, or None if one can be made. Called under the guard."""
        state = self._core.view.state
        check_unique(name, (fork.name for fork in state.forks.values()), what="fork")
        found = state.named(name)
        if found is None and len(state.forks) > FORKS_MAX:
            raise InvalidInput(f"a queue has at most {FORKS_MAX} forks; remove one first")
        return found

    def _mark_read(self) -> None:
        self._check_not_reading()
        self._cursor.is_reading = True

    def _take_shared(self, rows: int, limit: int) -> Selection:
        """Choose items and consume them, together with other pops if one is under way."""
        if limit != INT64_MAX:
            return self._tolerating(self._take, rows, limit)
        return self._past_damage(self._take_alone_or_together, rows)

    def _take_alone_or_together(self, rows: int) -> Selection:
        self._core.view.check_alive()
        # Who comes while another pops, or waits for its turn, must not queue up behind it: each
        # would pay for a write of its own. Two that come at the same moment may.
        if self._is_popping or self._pops.is_led:
            return self._pops.take(rows)
        self._is_popping = True
        try:
            with self._cursor.lock:
                return self._take(rows)
        finally:
            self._is_popping = False

    def _select(self, rows: int, limit: int) -> Selection:
        """Choose items."""
        return self._tolerating(self._cursor.select, rows, limit)

    def _take(self, rows: int, limit: int = INT64_MAX) -> Selection:
        """Choose items and consume them. Called under the cursor's lock."""
        core, cursor = self._core, self._cursor
        core.view.check_open()
        if cursor.is_removed or cursor.is_reading or core.is_read_only:
            self._check()
            self._check_not_reading()
        selection = cursor.select(rows, limit)
        if selection.parts:
            self._consume(selection)
        return selection

    def _waiting(
        self,
        attempt: Callable[[int, int], Selection],
        rows: int,
        key_max: KeyMax,
        wait_s: float | None,
    ) -> Selection:
        """Attempt until something is found or the time is up."""
        if wait_s is None or not rows:
            return attempt(rows, _limit(key_max))
        view = self._core.view
        deadline_s = view.clock.monotonic_s() + wait_seconds(wait_s)
        while True:
            limit = _limit(key_max)
            selection = attempt(rows, limit)
            if selection.parts:
                return selection
            left_s = deadline_s - view.clock.monotonic_s()
            if left_s <= 0:
                return selection
            if callable(key_max):
                left_s = min(left_s, self._due_in_s(limit))
            with view.guard:
                is_stale = view.state.arrived != selection.arrived
                if not (is_stale or view.is_closed or self._cursor.is_removed):
                    view.waiting += 1
                    try:
                        view.clock.wait(view.arrivals, min(left_s, view.wait_s_max))
                    finally:
                        view.waiting -= 1

    def _due_in_s(self, now_ns: int) -> float:
        """How long until the next item is due, if keys are a time in nanoseconds, or until it is
        worth another look.
        """
        first = self._select(1, INT64_MAX)
        return look_in_s(first.cut.high, now_ns) if first.parts else float("inf")

    def _tolerating(self, attempt: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        """Attempt under the cursor's lock; set damaged frames aside and try again, if told to."""

        def locked() -> T:
            with self._held():
                return attempt(*args)

        return self._past_damage(locked)

    def _past_damage(self, attempt: Callable[[Unpack[Args]], T], *args: *Args) -> T:
        """Attempt until no damaged frame is in the way, if such are to be set aside. The caller
        holds no cursor: setting aside takes those of all forks, in order.
        """
        while True:
            try:
                return attempt(*args)
            except DamagedFrame as damage:
                self._core.handle_damage(damage)

    def _consume(self, selection: Selection, frames: tuple[PreparedFrame, ...] = ()) -> None:
        folder, cursor = self._core.folder, self._cursor
        cut, rows = selection.cut, selection.rows
        if not cursor.knows(selection):
            # Frames were moved or given up since the choice; count what is really left of it.
            rows = count_covered(folder, cursor, cut)
        if rows > cursor.fork.live:
            raise self._miscounted(rows)
        sync = folder.syncs_takes or (folder.syncs_pushes and bool(frames))
        folder.commit(Consume(cursor.fork.id, cut, rows, sync, selection, frames))

    def _cut(self, cut: Cut, rows: int) -> None:
        folder, fork = self._core.folder, self._cursor.fork
        if rows > fork.live:
            raise self._miscounted(rows)
        folder.commit(Consume(fork.id, cut, rows, folder.syncs_takes))

    def _miscounted(self, rows: int) -> Bug:
        """The error of a cut that, once written, would keep the folder from being opened."""
        name, live = self._cursor.fork.name, self._cursor.fork.live
        return Bug(f"fork {name!r} was about to consume {rows} items, and has {live}")

    def _after_take(self, rows: int) -> None:
        # Not by len(), which raises once the queue is closed; what was taken must reach the caller.
        fork = self._cursor.fork
        self._core.maintenance.after_take(fork.id, rows, fork.live)

    @contextmanager
    def _held(self, first: AbstractContextManager[object] = _NOTHING) -> Iterator[None]:
        """Within it this end is there and stands still, and so does what else is to be held."""
        # In a child of os.fork() nobody would ever let go of what was held at that moment.
        self._core.view.check_alive()
        with first, self._cursor.lock:
            self._check()
            yield

    def _check(self) -> None:
        self._core.view.check_open()
        if self._cursor.is_removed:
            raise ForkRemoved(f"fork {self._cursor.fork.name!r} was removed; fork the queue again")

    def _check_not_reading(self) -> None:
        if self._core.is_read_only:
            raise self._core.refusal()
        if self._cursor.is_reading:
            name = self._cursor.fork.name
            what = f"fork {name!r}" if name else "the queue"
            raise ReadInProgress(
                f"{what} has a read open; leave its block first, or use another fork"
            )


def _rows(n: int) -> int:
    count = whole_number(n)
    if count is None:
        raise InvalidInput(f"the number of items must be a whole number, not {shown(n)}")
    return count if count >= 0 else 2**62


def _key(key: int) -> int:
    number = whole_number(key)
    if number is None or not INT64_MIN <= number <= INT64_MAX:
        raise InvalidKey(f"a key is a whole number from -2**63 to 2**63 - 1, not {shown(key)}")
    return number


def _limit(key_max: KeyMax) -> int:
    if key_max is None:
        return INT64_MAX
    return _key(key_max() if callable(key_max) else key_max)
