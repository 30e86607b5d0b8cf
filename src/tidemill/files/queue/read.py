"""A read transaction: what is popped when its block is left, and what is pushed with it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING

from tidemill.batch import Batch
from tidemill.errors import Closed, ReadInProgress
from tidemill.files.commit.operation import Push
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.merge.cursor import Selection

if TYPE_CHECKING:
    from tidemill.files.queue.consuming_end import ConsumingEnd, KeyMax


class Read:
    """A read transaction, made by `read()`: leaving its block pops the items, unless it raises.

    >>> import tempfile, tidemill as tm
    >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
    >>> receipt = queue.push([(1, b"a"), (2, b"b")])
    >>> with queue.read(1) as read:
    ...     read.batch.rows()
    [(1, b'a')]
    >>> with queue.read(1) as read:
    ...     read.keep()
    >>> len(queue)
    1
    >>> queue.close()
    """

    def __init__(self, end: ConsumingEnd, rows: int, key_max: KeyMax, wait_s: float | None) -> None:
        self._end = end
        self._rows = rows
        self._key_max = key_max
        self._wait_s = wait_s
        self._selection: Selection | None = None
        self._pushed: list[PreparedFrame] = []
        self._is_kept = False

    @property
    def batch(self) -> Batch:
        """The items that leaving the block will pop."""
        if self._selection is None:
            raise Closed("a read has items only inside its `with` block")
        return self._selection.batch

    def push(self, data: object, *, key: str | None = None) -> int:
        """Push items when the block is left, in one operation with the pop; returns how many.

        If the block raises, they are not pushed; `keep` pops nothing, but pushes them.
        """
        if self._selection is None:
            raise Closed("a read takes items only inside its `with` block")
        self._end._check()
        preparation = self._end._core.folder.preparation
        rows = preparation.rows(data, key)
        count = len(rows.keys)
        if count:
            self._pushed += preparation.frames(rows)
        return count

    def keep(self) -> None:
        """Pop nothing when the block is left."""
        self._is_kept = True

    def __enter__(self) -> Read:
        if self._selection is not None:
            raise ReadInProgress("this read is open already; leave its block first")
        self._pushed, self._is_kept = [], False
        self._selection = self._end._waiting(self._begin, self._rows, self._key_max, self._wait_s)
        return self

    def _begin(self, rows: int, limit: int) -> Selection:
        return self._end._tolerating(self._mark, rows, limit)

    def _mark(self, rows: int, limit: int) -> Selection:
        self._end._check_not_reading()
        selection = self._end._cursor.select(rows, limit)
        # A read that found nothing has nothing to protect, and others may come before it ends.
        self._end._cursor.is_reading = bool(selection.parts)
        return selection

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        selection, self._selection = self._selection, None
        end = self._end
        frames = tuple(self._pushed)
        if selection is None:
            return
        try:
            if kind is not None:
                return
            self._commit(selection, frames)
        finally:
            if selection.parts:
                end._cursor.is_reading = False

    def _commit(self, selection: Selection, frames: tuple[PreparedFrame, ...]) -> None:
        """Pop what was read, and push what is to be pushed, as far as there is any of it."""
        end = self._end
        if selection.parts and not self._is_kept:
            with self._room(frames):
                end._tolerating(end._consume, selection, frames)
            end._after_take(selection.rows)
        elif frames:
            folder = end._core.folder
            with self._room(frames):
                folder.commit(Push(sync=folder.syncs_pushes, frames=frames))
            end._core.maintenance.after_push()

    def _room(self, frames: tuple[PreparedFrame, ...]) -> AbstractContextManager[None]:
        self._end._check()
        return self._end._core.room.reserved(sum(frame.record_bytes for frame in frames))
