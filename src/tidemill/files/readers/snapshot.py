"""A scan: the items of one end as they stand now, streamed in order while everybody works on.

What a snapshot is made of, all taken at one moment under the guard:

    segments   held, so that their files stay even if upkeep retires them
    last       the last frame of the active segment; what is appended behind it is not part of it
    cuts       a copy of those of the fork, and of what tells which frames are meant for it

Memory holds the merge of one bucket at a time and one batch, whatever the size of the queue.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from tidemill.batch import Batch
from tidemill.errors import InvalidInput
from tidemill.files.folder.count import bucket_bounds
from tidemill.files.folder.view import View
from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.index.lately_read import LatelyRead
from tidemill.files.merge.cursor import Cursor, frames_left
from tidemill.files.merge.frame_reader import DamagedFrame, FrameReader
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.run import Run
from tidemill.limits import INT64_MAX, INT64_MIN, MIB, WINDOW_ROWS
from tidemill.shown import shown

_BATCH_BYTES = 8 * MIB  # about what a batch of a scan takes
_FRAMES_TOGETHER_MAX = 1024  # of buckets that are opened together


class Snapshot:
    """The frames that one end sees at one moment."""

    def __init__(self, view: View, cursor: Cursor, low: int, high: int) -> None:
        self.view = view
        self.low = low
        self.high = high
        with view.guard:
            self._cuts = cursor.fork.cuts.copy()
            self._fork = copy.copy(cursor.fork)
            self._audiences = dict(view.state.audiences)
            self.payload_schema = view.payload_schema
            segments = {number: view.segments[number] for number in view.index.segments()}
            self.buckets = view.index.buckets(*bucket_bounds(view, low, high))
            self._set_aside = view.state.quarantined
            self._active, self._last_offset = last_frame(view)
            self._hold = view.holds.hold(list(segments.values()))
        self._segments = segments
        self._lately_read = LatelyRead()
        self._reader = FrameReader(segments, view.settings.versions, own_from=view.reader.own_from)

    def frames(self, low: int, high: int) -> FrameList:
        """The frames of the buckets from `low` to `high` that may hold rows of the end, within the
        bounds.
        """
        parts = []
        for number, segment in self._segments.items():
            rows = self._lately_read.frames(segment, low, high)
            if number == self._active:
                rows = rows[rows["offset"] <= self._last_offset]
            parts.append((number, rows))
        frames = FrameList.of(parts)
        in_bounds = (frames.rows["key_max"] >= self.low) & (frames.rows["key_min"] <= self.high)
        if self._set_aside:
            in_bounds &= ~np.isin(frames.places, np.array(list(self._set_aside), np.int64))
        return frames_left(frames.where(in_bounds), self._fork, self._cuts, self._audiences)

    def read(self, entry: Entry) -> Run:
        """The rows of a frame that the end had left, from the lower bound on."""
        run = self._reader.read_live(entry, self._cuts)
        if entry.key_min < self.low:
            run.position = run.until(self.low - 1, INT64_MAX)
        return run

    def release(self) -> None:
        """Let the segments go."""
        self._hold.release()


class Scan:
    """The batches of a snapshot, one after another."""

    def __init__(
        self,
        snapshot: Snapshot,
        columns: list[str] | None,
        on_damage: Callable[[DamagedFrame], None],  # raises, or the frame is passed over
    ) -> None:
        self._snapshot = snapshot
        self._on_damage = on_damage
        payload = snapshot.payload_schema
        empty = Batch.empty(payload).to_arrow().schema
        self._names = checked_columns(columns, empty.names)
        self.schema = pa.schema([empty.field(name) for name in self._names])
        # A payload keeps one column at least, or it would no longer know how many rows it has.
        wanted = [name for name in payload.names if name in self._names] or payload.names[:1]
        self._wanted = None if wanted == payload.names else wanted
        self._at = 0  # of the buckets
        self._together = 1  # how many of them are opened at a time
        self._merge: Merge | None = None
        self._rows = 0
        self._failure: BaseException | None = None

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, self)

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        if self._failure is not None:
            raise self._failure
        try:
            return self._next_batch()
        except StopIteration:
            raise
        except BaseException as failure:
            # The merge may have lost rows on the way, and must not go on behind them.
            self._failure = failure
            self._snapshot.release()
            raise

    def _next_batch(self) -> pa.RecordBatch:
        while True:
            self._snapshot.view.check_alive()
            if self._merge is None and not self._open_next():
                self._snapshot.release()
                raise StopIteration
            if self._merge is not None:
                # Rows may be far larger than on average, and lie next to each other.
                choice = self._merge.choose(self._rows, self._snapshot.high, bytes_max=_BATCH_BYTES)
                if choice is not None:
                    self._merge.advance(choice)
                    return choice.batch.to_arrow().select(self._names)
                self._merge = None

    def _open_next(self) -> bool:
        """Open the merge of the next buckets; False if there are none. Those that hold little are
        opened together: a batch of its own for each would cost far more than its rows.
        """
        buckets = self._snapshot.buckets[self._at : self._at + self._together]
        if not buckets:
            return False
        frames = self._snapshot.frames(buckets[0], buckets[-1])
        length = int(frames.rows["length"].sum())
        is_little = len(frames) <= _FRAMES_TOGETHER_MAX and length <= _BATCH_BYTES
        if not is_little and len(buckets) > 1:
            self._together = 1
            return self._open_next()
        self._at += len(buckets)
        self._together = min(2 * self._together, _FRAMES_TOGETHER_MAX) if is_little else 1
        if len(frames):
            row_bytes = length // int(frames.rows["rows"].sum()) + 1
            self._rows = min(max(_BATCH_BYTES // row_bytes, 1), WINDOW_ROWS)
            self._merge = Merge(frames, self._load)
        return True

    def _load(self, entries: list[Entry]) -> list[Run]:
        runs = []
        for entry in entries:
            try:
                run = self._snapshot.read(entry)
            except DamagedFrame as damage:
                self._on_damage(damage)
                run = _no_rows(self._snapshot.payload_schema)
            runs.append(run if self._wanted is None else run.projected(self._wanted))
        return runs


def last_frame(view: View) -> tuple[int, int]:
    """(active segment, offset of the last frame that was applied to it). Called under the guard."""
    number, active = max(view.segments.items())
    offsets = active.entries["offset"]
    return number, int(offsets.max()) if len(offsets) else -1


def _no_rows(payload: pa.Schema) -> Run:
    return Run(Batch.empty(payload).carried(), None, None, seq_max=0)


def checked_columns(columns: object, known: list[str]) -> list[str]:
    """The columns that a caller names, out of those that there are; without any, all of them."""
    if columns is None:
        return known
    if not isinstance(columns, list | tuple):
        raise InvalidInput(f"columns is a list of names, not {shown(columns)}")
    names = list(columns)
    for name in names:
        if name not in known:
            raise InvalidInput(f"there is no column {shown(name)}; there are {', '.join(known)}")
    if not names or len(set(names)) < len(names):
        raise InvalidInput(f"columns names each column once, and one at least, not {shown(names)}")
    return names


def key_bounds(keys: tuple[int | None, int | None] | None) -> tuple[int, int]:
    """(low, high), where None stands for no bound."""
    if keys is None:
        return INT64_MIN, INT64_MAX
    if not isinstance(keys, tuple | list) or len(keys) != 2:
        raise InvalidInput(f"keys is a pair (lowest, highest), not {shown(keys)}")
    low, high = keys
    return (INT64_MIN if low is None else low), (INT64_MAX if high is None else high)
