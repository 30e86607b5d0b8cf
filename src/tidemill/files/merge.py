"""The merge of one bucket for one fork: overlapping frames come out as one sorted sequence.

    pending   frames not in memory, by the (key, seq) of their first row
    loaded    runs in memory whose rows interleave with others
    windows   runs sorted against everything known when they were made; pops take slices of them
    late      frames pushed since; a pop merges in just the rows of them that it needs

    ┌─────────┐  load   ┌────────┐  window of some 64 K rows  ┌─────────┐   pop
    │ pending │ ──────▶ │ loaded │ ─────────────────────────▶ │ windows │ ───────▶ slices
    └─────────┘         └────────┘                            └─────────┘     ▲
         ▲ when a new window is made                              ┌──────┐    │
         └─────────────────────────────────────────────────────── │ late │ ───┘
                                                                  └──────┘
Pure but for its loader. A frame that overlaps no other becomes a window as it is, without a copy.
Frames are loaded in the order of their first rows until enough rows lie below the first row of the
rest; where that takes more memory than allowed, larger windows are made by passes over the frames.

Invariant: every row outside the windows is greater than the last row of the windows, except rows of
late frames.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemill.batch import Batch
from tidemill.files.frame_table import Entry, FrameList
from tidemill.files.run import Run, merged
from tidemill.limits import INT64_MAX, MERGE_BYTES_MAX, WINDOW_ROWS

_CHUNK_FRAMES = 256  # frames read at once
_LATE_RUNS_MAX = 32  # late frames that are looked at one by one
_AHEAD_FRAMES = 8  # ... before anyone asked for more than one
_AHEAD_BYTES = 1024 * 1024


class Source(NamedTuple):
    """A frame on disk, from the row (key, seq) on: those before it are in windows already."""

    key: int
    seq: int
    entry: Entry


class Pending:
    """Frames that wait to be loaded, the one with the least next row first.

    Those known from the start stay in a sorted table, 64 bytes each, and are unpacked some at a
    time; the heap holds the few that came later.
    """

    def __init__(self, frames: FrameList) -> None:
        self._frames = frames.sorted_by_key()
        self._unpacked = 0  # how many of the frames
        self._next: list[Source] = []  # unpacked ones, the least last
        self._heap: list[Source] = []
        self._unpack()

    def __len__(self) -> int:
        return len(self._frames) - self._unpacked + len(self._next) + len(self._heap)

    @property
    def head(self) -> tuple[int, int]:
        """(key, seq) of the least next row, or one that no row reaches."""
        if self._heap and (not self._next or self._heap[0] < self._next[-1]):
            return self._heap[0][:2]
        return self._next[-1][:2] if self._next else (INT64_MAX, INT64_MAX)

    @property
    def length(self) -> int:
        """The bytes of the frame that is next in the table, as a measure of all."""
        return self._next[-1].entry.length if self._next else 0

    def push(self, source: Source) -> None:
        heapq.heappush(self._heap, source)

    def pop(self) -> Source:
        if self._heap and (not self._next or self._heap[0] < self._next[-1]):
            return heapq.heappop(self._heap)
        source = self._next.pop()
        if not self._next:
            self._unpack()
        return source

    def _unpack(self) -> None:
        some = self._frames.part(self._unpacked, self._unpacked + _CHUNK_FRAMES)
        self._unpacked += len(some)
        self._next = [Source(entry.key_min, entry.seq_min, entry) for entry in some]
        self._next.reverse()


class Loaded(NamedTuple):
    """A run in memory, and the frame it came from."""

    run: Run
    entry: Entry | None  # None: a window that was taken back


class Choice(NamedTuple):
    """Rows that a pop would take, and how far each run would move."""

    batch: Batch
    last: tuple[int, int]  # (key, seq) of the last one
    moves: list[tuple[Run, int]]


class Merge:
    """All live rows of a bucket, in order."""

    def __init__(
        self,
        frames: FrameList,
        load: Callable[[list[Entry]], list[Run]],
        *,
        bytes_max: int = MERGE_BYTES_MAX,
    ) -> None:
        self._load = load
        self._bytes_max = bytes_max
        self._pending = Pending(frames)
        self._loaded: list[Loaded] = []
        self._chunk = 1
        self._windows: list[Run] = []
        self._late: list[Entry] = []
        self._late_runs: list[Loaded] = []

    def add(self, entry: Entry) -> None:
        """Take note of a frame that was pushed after the merge was opened."""
        self._late.append(entry)

    @property
    def is_empty(self) -> bool:
        """Whether no row is left, as far as is known without loading."""
        return not (
            self._windows or self._loaded or len(self._pending) or self._late or self._late_runs
        )

    def choose(self, rows: int, key_max: int) -> Choice | None:
        """The next `rows` rows with keys up to `key_max`, or as many as there are; None if there
        are none.
        """
        has_late = self._late or self._late_runs
        if not has_late and key_max == INT64_MAX:
            # The common case by far: what is wanted lies in one window.
            if not self._windows and (window := self._next_window(rows, key_max)) is not None:
                self._windows.append(window)
            if self._windows and rows <= len(self._windows[0]):
                return _choice([(self._windows[0], self._windows[0].position, sys.maxsize)], rows)
        if has_late and sum([len(window) for window in self._windows]) < rows:
            self._take_back_windows()
        slices, count = self._slices(rows, key_max)
        if has_late:
            last = slices[-1][0].row(slices[-1][2] - 1) if count == rows else (key_max, INT64_MAX)
            self._load_late(last)
            slices += self._late_slices(last)
        slices = [found for found in slices if found[2] > found[1]]
        if not slices:
            return None
        return _choice(slices, rows)

    def choose_piece(self, rows: int) -> Choice | None:
        """The next rows that lie together in memory, at most `rows`: nothing is copied for them.
        Not for a merge that frames are added to.
        """
        if not self._windows and (window := self._next_window(rows, INT64_MAX)) is not None:
            self._windows.append(window)
        if not self._windows:
            return None
        window = self._windows[0]
        return _choice([(window, window.position, window.rows)], rows)

    def advance(self, choice: Choice) -> None:
        """Drop the rows of a choice: they are consumed."""
        for run, position in choice.moves:
            run.position = position
        while self._windows and not len(self._windows[0]):
            self._windows.pop(0)
        if self._late_runs:
            self._late_runs = [late for late in self._late_runs if len(late.run)]

    def _slices(self, rows: int, key_max: int) -> tuple[list[tuple[Run, int, int]], int]:
        """(parts of the windows that hold the next rows, how many that is)."""
        slices: list[tuple[Run, int, int]] = []
        count = 0
        position = 0
        while count < rows:
            if position == len(self._windows):
                window = self._next_window(rows - count, key_max)
                if window is None:
                    break
                self._windows.append(window)
            run = self._windows[position]
            position += 1
            stop = min(run.rows, run.position + rows - count)
            if run.row(stop - 1)[0] > key_max:
                stop = run.until(key_max, INT64_MAX)
                slices.append((run, run.position, stop))
                return slices, count + stop - run.position
            slices.append((run, run.position, stop))
            count += stop - run.position
        return slices, count

    def _take_back_windows(self) -> None:
        """Make the rest of the windows ordinary runs, so that new windows can be made of all."""
        self._loaded += [Loaded(window, None) for window in self._windows]
        self._windows.clear()

    def _load_late(self, last: tuple[int, int]) -> None:
        """Load the late frames that begin before `last`."""
        needed = [entry for entry in self._late if (entry.key_min, entry.seq_min) <= last]
        if needed:
            self._late = [entry for entry in self._late if (entry.key_min, entry.seq_min) > last]
            runs = self._load(needed)
            self._late_runs += [
                Loaded(run, entry) for run, entry in zip(runs, needed, strict=True) if len(run)
            ]
            self._merge_late()

    def _merge_late(self) -> None:
        """Make one run of many short ones, for every pop looks at each."""
        short = [late.run for late in self._late_runs if late.run.rows < WINDOW_ROWS]
        if len(short) >= _LATE_RUNS_MAX:
            one = merged([(run, run.position, run.rows) for run in short])[0]
            long = [late for late in self._late_runs if late.run.rows >= WINDOW_ROWS]
            self._late_runs = [*long, Loaded(one, None)]

    def _late_slices(self, last: tuple[int, int]) -> list[tuple[Run, int, int]]:
        return [(late.run, late.run.position, late.run.until(*last)) for late in self._late_runs]

    def _next_window(self, wanted: int, key_max: int) -> Run | None:
        """The next rows in order as one run; None if there are none up to `key_max`."""
        if not self._windows:
            # Behind a window that stands, late frames cannot be: their rows may belong before it.
            self._absorb_late()
        wanted = min(wanted, WINDOW_ROWS)
        if not self._load_enough(wanted, key_max):
            return self._stream_window()
        if not self._loaded:
            return None
        bound = self._pending.head
        if len(self._loaded) > 1:
            self._loaded.sort(key=lambda loaded: loaded.run.head)
            bound = min(bound, self._loaded[1].run.head)
        run = self._loaded[0].run
        if run.last < bound and (key_max == INT64_MAX or run.head[0] <= key_max):
            return self._loaded.pop(0).run
        if run.head[0] > key_max:
            return None
        if len(self._loaded) == 1:
            start, run.position = run.position, run.until(bound[0], bound[1] - 1)
            return run.part(start, run.position)
        return self._merge_window(wanted, self._pending.head)

    def _absorb_late(self) -> None:
        """Make late frames ordinary ones, now that a new window is due."""
        for entry in self._late:
            self._pending.push(Source(entry.key_min, entry.seq_min, entry))
        self._late.clear()
        self._loaded += self._late_runs
        self._late_runs = []

    def _load_enough(self, wanted: int, key_max: int) -> bool:
        """Load pending frames until `wanted` rows lie below the first row of the others; False if
        memory is full.
        """
        if not self._loaded:
            # Whoever comes back for more is likely to go on: a few frames are read in one go, while
            # it is cheap.
            self._chunk = min(2 * self._chunk, _AHEAD_FRAMES)
        chunk = min(self._chunk, max(_AHEAD_BYTES // max(self._pending.length, 1), 1))
        while len(self._pending) and self._pending.head[0] <= key_max:
            if self._loaded:
                key, seq = self._pending.head
                ready = 0
                for run, _ in self._loaded:
                    # A run that ends before the others begin need not be looked at.
                    stop = run.rows if run.last < (key, seq) else run.until(key, seq - 1)
                    ready += stop - run.position
                if ready >= wanted:
                    return True
                if len(self._loaded) > 1 and self._held_bytes() > self._bytes_max:
                    return False
            self._loaded += self._load_pending(chunk)
            chunk = min(2 * chunk, _CHUNK_FRAMES)
        return True

    def _held_bytes(self) -> int:
        return sum([run.nbytes for run, _ in self._loaded])

    def _load_pending(self, count: int) -> list[Loaded]:
        """Load the next frames; those with nothing left are skipped."""
        sources: list[Source] = []
        wanted_bytes = 0
        # However many frames are read at once, they must not be more than memory allows.
        while len(sources) < count and len(self._pending) and wanted_bytes <= self._bytes_max // 4:
            sources.append(self._pending.pop())
            wanted_bytes += sources[-1].entry.length
        runs = self._load([source.entry for source in sources])
        loaded = []
        for (key, seq, entry), run in zip(sources, runs, strict=True):
            if (key, seq) != (entry.key_min, entry.seq_min):
                run.position = run.until(key, seq - 1)
            if len(run):
                loaded.append(Loaded(run, entry))
        return loaded

    def _merge_window(self, wanted: int, bound: tuple[int, int]) -> Run:
        """Merge the least rows of all loaded runs, about as many as a window takes."""
        limit = self._limit(max(wanted, WINDOW_ROWS), bound)
        window = merged(_parts_until(self._loaded, limit))[0]
        self._loaded = [loaded for loaded in self._loaded if len(loaded.run)]
        return window

    def _limit(self, rows: int, bound: tuple[int, int]) -> tuple[int, int]:
        """A row below `bound` up to which the loaded runs hold about `rows` rows, and some anyway.

        Every run gives one row in `stride` as a sample, so that long runs and short ones count
        alike.
        """
        stride = max(rows // len(self._loaded), 16)
        samples = [run.sample(stride) for run, _ in self._loaded if len(run) >= stride]
        limit = bound[0], bound[1] - 1
        rank = max(rows // stride, 1) - 1
        if rank >= sum([len(keys) for keys, _ in samples]):
            return limit
        keys = np.concatenate([keys for keys, _ in samples])
        key = np.partition(keys, rank)[rank]
        ties = np.concatenate([seqs for _, seqs in samples])[keys == key]
        among = rank - int((keys < key).sum())
        return min(limit, (int(key), int(np.partition(ties, among)[among])))

    def _stream_window(self) -> Run:
        """A window from more frames than memory holds: each is read, gives its least rows, goes.

        Every window costs a pass over the frames that overlap, so a window is made as large as
        memory allows.
        """
        rows = sum(len(run) for run, _ in self._loaded)
        row_bytes = sum(run.nbytes for run, _ in self._loaded) // rows + 1
        sources = len(self._loaded) + len(self._pending)
        share = self._bytes_max // 4 // row_bytes * len(self._loaded) // sources
        limit = self._limit(max(share, 1), (INT64_MAX, INT64_MAX))
        pieces: list[Run] = []
        waiting, self._loaded = self._loaded, []
        while waiting:
            some = waiting[:_CHUNK_FRAMES]
            del waiting[:_CHUNK_FRAMES]
            if parts := _parts_until(some, limit):
                # Merging copies the rows, so that the frames they came from can go.
                pieces.append(merged(parts)[0])
            for run, entry in some:
                if len(run) and entry is not None:
                    self._pending.push(Source(*run.head, entry))
                elif len(run):
                    self._loaded.append(Loaded(run, None))
            del some, parts
            # Freed blocks of one size serve no other, and would pile up beside the new ones.
            pa.default_memory_pool().release_unused()
            if not waiting and len(self._pending) and self._pending.head <= limit:
                waiting = self._load_pending(_CHUNK_FRAMES)
        return merged([(piece, 0, piece.rows) for piece in pieces])[0]


def _parts_until(loaded: list[Loaded], limit: tuple[int, int]) -> list[tuple[Run, int, int]]:
    """The rows of each run up to `limit`; the runs move behind them."""
    parts = []
    for run, _ in loaded:
        start, run.position = run.position, run.until(*limit)
        if run.position > start:
            parts.append((run, start, run.position))
    return parts


def _choice(slices: list[tuple[Run, int, int]], rows: int) -> Choice:
    if len(slices) == 1:
        run, start, stop = slices[0]
        stop = min(stop, start + rows)
        return Choice(run.batch(start, stop), run.row(stop - 1), [(run, stop)])
    if _ordered(slices) and sum(stop - start for _, start, stop in slices) <= rows:
        batch = Batch.concat([run.batch(start, stop) for run, start, stop in slices])
        run, _, stop = slices[-1]
        return Choice(batch, run.row(stop - 1), [(run, stop) for run, _, stop in slices])
    run, order = merged(slices)
    count = min(rows, run.rows)
    starts = np.cumsum([0, *(stop - start for _, start, stop in slices)])
    # Every part gives a prefix of itself, so counting its rows among the chosen ones says how far
    # it moves.
    taken = np.histogram(order[:count], bins=starts)[0]
    moves = [(part, start + int(n)) for (part, start, _), n in zip(slices, taken, strict=True)]
    return Choice(run.batch(0, count), run.row(count - 1), moves)


def _ordered(slices: list[tuple[Run, int, int]]) -> bool:
    """Whether each part ends before the next begins."""
    return all(
        run.row(stop - 1) < following.row(start)
        for (run, _, stop), (following, start, _) in pairwise(slices)
    )
