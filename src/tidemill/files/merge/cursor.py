"""Where a fork stands: its open merges, and how the next items are chosen from them.

Choosing and consuming are two steps, so that a read can be given up. What is chosen is fixed by
`arrived`, the last seq there was when the choice began: items pushed meanwhile are not in it, and
are not consumed with it.

Locks: `lock` is held while choosing and consuming, by one thread of the fork's users at a time. The
folder's own lock is taken for moments only, so readers hold up writers no longer than an index
update.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemill.batch import Batch
from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.index.index import Index
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.merge.choice import Choice
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.pending import Kept, Source, source_of
from tidemill.files.merge.run import Run
from tidemill.files.state.cut import Cut, Cuts
from tidemill.files.state.state import ForkState, State, sees
from tidemill.limits import INT64_MIN

_bucket = attrgetter("entry.bucket")  # of a source
_NEWS_MAX = 4096  # frames and buckets to remember while nobody chooses


class Selection(NamedTuple):
    """Items that a fork would consume next."""

    batch: Batch
    rows: int
    arrived: int
    parts: list[tuple[int, Merge, Choice]]  # by bucket
    generation: int
    number: int  # counted through all that the cursor has made

    @property
    def cut(self) -> Cut:
        """The take that consumes them; its place is known once it is written."""
        return Cut(0, self.arrived, INT64_MIN, *self.parts[-1][2].last)


class Cursor:
    """The consuming side of one fork."""

    def __init__(
        self,
        fork: ForkState,
        *,
        state: State,
        index: Index,
        reader: FrameReader,
        guard: threading.RLock,
        buckets_open_max: int,
        payload_schema: Callable[[], pa.Schema],
    ) -> None:
        self.fork = fork
        self.lock = threading.RLock()
        self.is_reading = False
        self.is_removed = False
        self._state = state
        self._index = index
        self._reader = reader
        self._guard = guard
        self._buckets_open_max = buckets_open_max
        self._payload_schema = payload_schema
        self._merges: dict[int, Merge] = {}
        self._inbox: list[Source] = []  # frames pushed since the last choice; guarded
        self._inbox_bytes = 0  # of those that are still in memory
        self._floor: int | None = None  # no bucket below has items, but for those; None: not known
        self._below: list[int] = []  # buckets below the floor that were pushed to since, ascending
        self._generation = 0
        self._selections = 0

    def note_push(
        self, entry: Entry, frame: PreparedFrame | None = None, bytes_max: int = 0
    ) -> None:
        """A frame was written, here or by another process; all that were since the last choice may
        take so many bytes in memory. Called under the guard.
        """
        if self._floor is None:
            return
        if entry.bucket < self._floor:
            at = bisect_left(self._below, entry.bucket)
            if self._below[at : at + 1] != [entry.bucket]:
                self._below.insert(at, entry.bucket)
        if entry.bucket in self._merges:
            kept: Kept | None = None
            # Of a carried frame the bytes may be elsewhere.
            if (
                frame is not None
                and frame.seqs is None
                and self._inbox_bytes + entry.length <= bytes_max
            ):
                self._inbox_bytes += entry.length
                kept = Kept(entry, frame.body.buffer, self._state.time_us, self._reader.written)
            self._inbox.append(source_of(entry, kept))
        if len(self._inbox) + len(self._below) > _NEWS_MAX:
            self._forget_unused()

    def forget(self) -> None:
        """Frames were moved or consumed by other means: start from the index again. Called under
        the guard.
        """
        self._generation += 1
        self._merges.clear()
        self._inbox.clear()
        self._inbox_bytes = 0
        self._floor = None
        self._below.clear()

    def _forget_unused(self) -> None:
        """Forget what nobody has asked for in a long time: it is found in the index again."""
        # Not while somebody chooses: what is opened then must hear of every push. The lock is not
        # waited for, because whoever chooses waits for the guard.
        if self.lock.acquire(blocking=False):
            try:
                self.forget()
            finally:
                self.lock.release()

    def rebase(self, fork: ForkState, state: State, index: Index, reader: FrameReader) -> None:
        """All that is known was made anew. Called under the guard."""
        self.fork, self._state, self._index, self._reader = fork, state, index, reader
        self.forget()

    def select(self, rows: int, key_max: int) -> Selection:
        """The next `rows` items up to `key_max`, or as many as there are."""
        try:
            return self._select(rows, key_max)
        except BaseException:
            # Rows that a merge was moving when a frame could not be read, or somebody interrupted,
            # are nowhere in it now. Without them it would go on behind them.
            with self._guard:
                self.forget()
            raise

    def _select(self, rows: int, key_max: int) -> Selection:
        self._selections += 1
        merges = self._merges
        with self._guard:
            arrived = self._state.next_seq - 1
            generation = self._generation
            if self._inbox:
                self._pass_on_pushes()
            # Buckets behind the last item that is left need not be looked into.
            wanted = min(rows, self.fork.live)
            bucket = self._floor
            if wanted and (self._below or bucket not in merges):
                bucket = self._next_bucket(None)
        parts: list[tuple[int, Merge, Choice]] = []
        while bucket is not None and wanted:
            merge = merges.get(bucket) or self._open(bucket, arrived)
            choice = merge.choose(wanted, key_max)
            if choice is not None:
                parts.append((bucket, merge, choice))
                if wanted == choice.rows:
                    break
                wanted -= choice.rows
            elif not merge.is_empty:
                break
            with self._guard:
                if choice is None and not parts:
                    self._leave(bucket)
                bucket = self._next_bucket(bucket)
        if len(merges) > self._buckets_open_max:
            self._close_surplus()
        if len(parts) == 1:
            _, _, choice = parts[0]
            batch, chosen = choice.batch, choice.rows
        elif parts:
            batch = Batch.concat([choice.batch for _, _, choice in parts])
            chosen = sum([choice.rows for _, _, choice in parts])
        else:
            batch, chosen = Batch.empty(self._payload_schema()), 0
        return Selection(batch, chosen, arrived, parts, generation, self._selections)

    def advance(self, selection: Selection) -> None:
        """The selection was consumed. Called under the guard."""
        _, _, arrived, parts, generation, number = selection
        if number != self._selections:
            # A peek since may have merged its rows with others, so that the runs it names are no
            # longer where they are taken from.
            self.forget()
            return
        merges = self._merges
        for bucket, merge, choice in parts:
            merge.advance(choice)
            # A bucket that was closed since is opened with what is left of it. One that was opened
            # anew does not know of the selection.
            if generation != self._generation or merges.get(bucket, merge) is not merge:
                self.forget()
                return
        floor = self._floor
        if floor is None or (parts[-1][0] == floor and not self._below):
            return  # The common case by far: all came from the lowest bucket, which goes on.
        if self._state.arrived == arrived:
            self._leave_below(parts[-1][0], floor)

    @property
    def generation(self) -> int:
        """Grows whenever frames were moved, or consumed by other means than a selection."""
        return self._generation

    def knows(self, selection: Selection) -> bool:
        """Whether the selection still is what it was when it was made."""
        return selection.generation == self._generation

    def live_frames(self, frames: FrameList) -> FrameList:
        """Those of the frames that may hold items of this fork."""
        return frames_left(frames, self.fork, self.fork.cuts, self._state.audiences)

    def read_live(self, entry: Entry) -> Run:
        return self._reader.read_live(entry, self.fork.cuts)

    def _pass_on_pushes(self) -> None:
        """Let the open merges know of new frames. Called under the guard."""
        for bucket, sources in groupby(self._inbox, _bucket):
            if bucket in self._merges:
                self._merges[bucket].add(sources)
        self._inbox.clear()
        self._inbox_bytes = 0
        # What is pushed before all else, and not popped, would pile up in memory for ever.
        for bucket in [bucket for bucket, merge in self._merges.items() if merge.is_oversized]:
            del self._merges[bucket]

    def _next_bucket(self, after: int | None) -> int | None:
        """The next bucket that may hold items, or the first one. Called under the guard."""
        if self._floor is None:
            found = self._index.next_bucket(INT64_MIN if after is None else after + 1)
            if after is None and found is not None:
                self._floor = found
            return found
        at = 0 if after is None else bisect_right(self._below, after)
        if at < len(self._below):
            return self._below[at]
        least = self._floor if after is None else max(self._floor, after + 1)
        return self._index.next_bucket(least)

    def _leave(self, bucket: int) -> None:
        """The lowest bucket is used up, unless something was pushed to it meanwhile."""
        if self._inbox or self._floor is None:
            return
        if self._below[:1] == [bucket]:
            self._below.pop(0)
        elif self._floor == bucket:
            self._floor = bucket + 1
        else:
            return
        self._merges.pop(bucket, None)

    def _leave_below(self, bucket: int, floor: int) -> None:
        """All buckets below this one are used up, and nothing was pushed to them meanwhile."""
        del self._below[: bisect_left(self._below, bucket)]
        self._floor = max(floor, bucket)
        for other in [other for other in self._merges if other < bucket]:
            del self._merges[other]

    def _open(self, bucket: int, arrived: int) -> Merge:
        ahead = self._index.read_ahead(bucket, self._guard)
        with self._guard:
            frames = self._index.frames(bucket, ahead)
            # What was pushed since the choice began is not part of it, and waits for the next.
            is_late = frames.rows["seq_min"] > arrived
            self._inbox += [source_of(entry) for entry in frames.where(is_late)]
            live = self.live_frames(frames.where(~is_late))
            merge = Merge(live, self._load, load_ones=self._load_ones)
            self._merges[bucket] = merge
        return merge

    def _load(self, entries: list[Entry]) -> list[Run]:
        return self._reader.read_all_live(entries, self.fork.cuts)

    def _load_ones(self, entries: list[Entry]) -> Run | None:
        return self._reader.read_ones_live(entries, self.fork.cuts)

    def _close_surplus(self) -> None:
        """Close the lowest buckets last: they are where the next items come from."""
        with self._guard:
            for bucket in sorted(self._merges, reverse=True):
                if len(self._merges) <= self._buckets_open_max:
                    return
                del self._merges[bucket]


def frames_left(
    frames: FrameList, fork: ForkState, cuts: Cuts, audiences: Mapping[int, frozenset[int]]
) -> FrameList:
    """Those of the frames that may hold items of a fork with these cuts."""
    frames = frames.where(~cuts.covered(frames))
    if frames.rows["audience"].any():
        seen = [sees(fork, audiences, entry.place, entry.audience) for entry in frames]
        frames = frames.where(np.array(seen, np.bool_))
    return frames
