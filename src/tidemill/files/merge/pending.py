"""Frames of a merge that wait to be loaded, and what they are once they are. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import pyarrow as pa

from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.merge.run import Run
from tidemill.limits import INT64_MAX

CHUNK_FRAMES = 256  # frames read at once
BEYOND = (INT64_MAX, INT64_MAX)  # a (key, seq) that no row reaches


class Kept(NamedTuple):
    """A frame that was just written, as it was encoded: it need not be read back."""

    entry: Entry
    body: pa.Buffer | bytes
    time_us: int
    decode: Callable[[Entry, pa.Buffer | bytes, int], Run]

    def run(self) -> Run:
        return self.decode(self.entry, self.body, self.time_us)


class Source(NamedTuple):
    """A frame from the row (key, seq) on: those before it are in windows already."""

    key: int
    seq: int
    entry: Entry
    held: Run | Kept | None = None  # None: it has to be read from disk

    @property
    def loaded(self) -> Loaded | None:
        """Its rows, if they need not be read from disk."""
        held = self.held
        if held is None:
            return None
        return Loaded(held.run() if isinstance(held, Kept) else held, self.entry)


class Loaded(NamedTuple):
    """A run in memory, and the frame it came from."""

    run: Run
    entry: Entry | None  # None: a window that was taken back, or rows of several frames


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

    def __bool__(self) -> bool:
        # Unpacked ones run out last.
        return bool(self._next or self._heap)

    @property
    def head(self) -> tuple[int, int]:
        """(key, seq) of the least next row, or one that no row reaches."""
        if self._heap and (not self._next or self._heap[0] < self._next[-1]):
            return self._heap[0][:2]
        return self._next[-1][:2] if self._next else BEYOND

    @property
    def length(self) -> int:
        """The bytes of the frame that is next in the table, as a measure of all."""
        return self._next[-1].entry.length if self._next else 0

    def count_until(self, key: int) -> int:
        """How many frames begin with this key or a lesser one."""
        unpacked, packed = self._until(key)
        return len(unpacked) + len(packed)

    def sample(self, count: int, key: int) -> list[Source]:
        """About so many of those frames, spread evenly over them; they stay pending."""
        unpacked, packed = self._until(key)
        if not count:
            return []
        step = max((len(unpacked) + len(packed)) // count, 1)
        first = -len(unpacked) % step
        chosen = [packed.part(at, at + 1) for at in range(first, len(packed), step)]
        return unpacked[::step] + [source_of(entry) for frames in chosen for entry in frames]

    def _until(self, key: int) -> tuple[list[Source], FrameList]:
        """The frames that begin with this key or a lesser one: (unpacked, packed)."""
        unpacked = [source for source in [*self._next, *self._heap] if source.key <= key]
        behind = int(self._frames.rows["key_min"].searchsorted(key, "right"))
        return unpacked, self._frames.part(self._unpacked, max(behind, self._unpacked))

    def push(self, source: Source) -> None:
        heapq.heappush(self._heap, source)

    def push_all(self, sources: list[Source]) -> None:
        """Take in frames that came later."""
        if self:
            for source in sources:
                self.push(source)
        else:
            # They are all there is, and sorted at once they need no heap.
            self._next = sorted(sources, reverse=True)

    def pop(self) -> Source:
        if self._heap and (not self._next or self._heap[0] < self._next[-1]):
            return heapq.heappop(self._heap)
        source = self._next.pop()
        if not self._next:
            self._unpack()
        return source

    def pop_in_order(self, frames_max: int, bytes_max: int) -> list[Source]:
        """The next frames, as long as each ends before the one behind it begins: so many of them at
        most, or so many bytes and what the last one has beyond.
        """
        found: list[Source] = []
        while len(found) < frames_max and bytes_max > 0 and (self._next or self._heap):
            source = self.pop()
            entry = source.entry
            if (entry.key_max, entry.seq_max) >= self.head:
                self._next.append(source)
                break
            found.append(source)
            bytes_max -= entry.length
        return found

    def _unpack(self) -> None:
        some = self._frames.part(self._unpacked, self._unpacked + CHUNK_FRAMES)
        self._unpacked += len(some)
        self._next = [source_of(entry) for entry in some]
        self._next.reverse()


def source_of(entry: Entry, held: Run | Kept | None = None) -> Source:
    """All of a frame."""
    return Source(entry.key_min, entry.seq_min, entry, held)
