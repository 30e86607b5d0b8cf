"""Rows of a log in a folder, by number: which frames hold them, read and verified.

Frames follow each other by their numbers, segment by segment. Those that lie side by side in a
segment are read in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from tidemill.batch import HEADER_BYTES, LogBatch, SchemaVersions, unpack_header
from tidemill.errors import Corrupt, MissingRows
from tidemill.files import advice
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.view import View
from tidemill.files.format.frame_table import Entries
from tidemill.files.format.record import ENVELOPE_BYTES, padded
from tidemill.files.journal.segment import Segment
from tidemill.log.frames import decode_rows, missing
from tidemill.log.refusals import trimmed

_CACHED_SEGMENTS = 2


class _Part(NamedTuple):
    """Frames of one segment that follow each other by their numbers."""

    segment: Segment
    entries: Entries


class RowReader:
    """Reads rows through a view of the folder, which the caller has brought up to date."""

    def __init__(self, view: View) -> None:
        self._view = view
        # The frames of sealed segments that were read last: a summary is a file, too.
        self._cached: dict[Segment, Entries] = {}

    def read(self, start: int, rows_max: int, bytes_max: int) -> list[LogBatch]:
        """Rows from `start` on, as the contract says."""
        with self._view.guard:
            state = self._view.state
            first, next_seq = state.log.first, state.next_seq
            if start < first:
                raise trimmed(start, first)
            if start >= next_seq:
                return []
            parts = list(self._choose(start, rows_max, bytes_max))
            hold = self._view.holds.hold([part.segment for part in parts])
            versions = self._view.settings.versions
        if not parts:
            raise self._missing(start, next_seq - 1)
        found: list[LogBatch] = []
        try:
            for part in parts:
                for batch in self._decode(part, versions):
                    self._take(batch, found, start)
        except Corrupt:
            if not found:
                raise
            # The next call meets it again, as the first thing.
        finally:
            hold.release()
        return _at_most(found, rows_max)

    def seq_at(self, time_us: int) -> int:
        """The first row written at this time or later; the next number if there is none."""
        with self._view.guard:
            state = self._view.state
            first, next_seq = state.log.first, state.next_seq
            segments = [one for one in self._in_order() if _bounds(one)[1] >= first]
            hold = self._view.holds.hold(segments)
        try:
            found = _bisect(len(segments), lambda at: self._last_time(segments[at]) >= time_us)
            if found == len(segments):
                return next_seq
            entries = self._entries(segments[found])
            at = _bisect(
                len(entries), lambda at: self._time(segments[found], entries[at]) >= time_us
            )
            return max(int(entries[at]["seq_min"]), first)
        finally:
            hold.release()

    def _choose(self, start: int, rows_max: int, bytes_max: int) -> Iterator[_Part]:
        """The frames that hold the rows, up to the first that is missing. Under the guard."""
        at, rows, size = start, 0, 0
        segments, numbers = self._view.segments, self._view.index.segments()
        begin = _bisect(len(numbers), lambda at: _bounds(segments[numbers[at]])[1] >= start)
        for number in islice(numbers, begin, None):
            segment = segments[number]
            low, high = _bounds(segment)
            if high < at:
                continue
            if low > at:
                if at == start:
                    raise self._missing(start, low - 1)
                return
            entries = self._entries(segment)
            # Step by step: a column of this table is no array of its own, and would be copied.
            lasts = entries["seq_max"]
            low_at = _bisect(len(lasts), lambda position: lasts[position] >= at)  # noqa: B023
            entries = entries[low_at : low_at + rows_max]  # There is a row in each at least.
            if int(entries["seq_min"][0]) > at:
                if at == start:
                    raise self._missing(start, int(entries["seq_min"][0]) - 1)
                return
            # Up to the first gap, and within the bounds, but one frame at least.
            gaps = np.flatnonzero(entries["seq_min"][1:] != entries["seq_max"][:-1] + 1)
            count = int(gaps[0]) + 1 if len(gaps) else len(entries)
            has_gap = count < len(entries)
            lengths = size + np.cumsum(entries["length"][:count], dtype=np.int64)
            fitting = int(lengths.searchsorted(bytes_max, "right"))
            # The rows of the first frame that lie before the start do not count.
            ends = entries["seq_max"][:count] - start + 1
            enough = int(ends.searchsorted(rows_max)) + 1
            stop = min(count, enough, max(fitting, 0 if rows else 1))
            if stop == 0:
                return
            yield _Part(segment, entries[:stop])
            rows = int(ends[stop - 1])
            size = int(lengths[stop - 1])
            at = start + rows
            if stop < count or has_gap or rows >= rows_max:
                return

    def _decode(self, chosen: _Part, versions: SchemaVersions) -> Iterator[LogBatch]:
        """The rows of frames; those that lie side by side are read in one go."""
        segment, entries = chosen
        offsets = entries["offset"].astype(np.int64)
        ends = offsets + padded_lengths(entries)
        breaks = [0, *(np.flatnonzero(offsets[1:] != ends[:-1]) + 1).tolist(), len(entries)]
        for low, high in pairwise(breaks):
            base = int(offsets[low])
            with storage_errors("reading", segment.path):
                [data] = segment.file.pread_buffers([int(ends[high - 1]) - base], base)
            view = memoryview(data)
            part = entries[low:high]
            begins = (offsets[low:high] - base + ENVELOPE_BYTES).tolist()
            lengths, checks = part["length"].tolist(), part["check"].tolist()
            for at, begin in enumerate(begins):
                frame = view[begin : begin + lengths[at]]
                try:
                    header = unpack_header(frame)
                    if header.check != checks[at]:
                        raise Corrupt("the frame is not the one that was written here")
                    yield decode_rows(header, frame[HEADER_BYTES:], versions)
                except Corrupt as damage:
                    raise self._damaged(segment, part[at], damage) from damage

    def _take(self, batch: LogBatch, found: list[LogBatch], start: int) -> None:
        if batch.first_seq < start:
            batch = batch.slice(start - batch.first_seq)
        found.append(batch)

    def _entries(self, segment: Segment) -> Entries:
        """The frames of a segment, by their numbers."""
        if segment.table is not None:
            return segment.entries
        found = self._cached.pop(segment, None)
        if found is None:
            found = segment.entries
        self._cached[segment] = found
        while len(self._cached) > _CACHED_SEGMENTS:
            del self._cached[next(iter(self._cached))]
        return found

    def _in_order(self) -> list[Segment]:
        """The segments that hold rows. Called under the guard."""
        view = self._view
        return [view.segments[number] for number in view.index.segments()]

    def _last_time(self, segment: Segment) -> int:
        return self._time(segment, self._entries(segment)[-1])

    def _time(self, segment: Segment, entry: np.void) -> int:
        """When a frame was written."""
        offset = int(entry["offset"])
        with storage_errors("reading", segment.path):
            data = segment.file.pread(HEADER_BYTES, offset + ENVELOPE_BYTES)
        try:
            return unpack_header(data).time_us
        except Corrupt as damage:
            raise self._damaged(segment, entry, damage) from damage

    def _missing(self, first: int, last: int) -> MissingRows:
        return missing(first, last, f"{advice.doctor(self._view.path)} tells more")

    def _damaged(self, segment: Segment, entry: np.void, damage: Corrupt) -> Corrupt:
        rows = f"rows {entry['seq_min']} to {entry['seq_max']}"
        # A follower reads through links of its own; what is damaged is the file they lead to.
        path = self._view.path / "journal" / segment.path.name
        return Corrupt(
            f"{rows} are damaged: {damage.reason}; {advice.doctor(self._view.path)} tells more",
            path=path,
            offset=int(entry["offset"]),
        )


def padded_lengths(entries: Entries) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """What the records of frames take in their segment."""
    lengths: np.ndarray[tuple[int], np.dtype[np.int64]] = entries["length"].astype(np.int64)
    unit = padded(1)
    return (lengths + ENVELOPE_BYTES + unit - 1) // unit * unit


def _bounds(segment: Segment) -> tuple[int, int]:
    """The first and the last number of a segment that has rows. Called under the guard."""
    rows = segment.entries if segment.directory is None else segment.directory
    return int(rows["seq_min"][0]), int(rows["seq_max"][-1])


def _at_most(batches: list[LogBatch], rows_max: int) -> list[LogBatch]:
    found = []
    for batch in batches:
        if rows_max <= 0:
            break
        found.append(batch if len(batch) <= rows_max else batch.slice(0, rows_max))
        rows_max -= len(batch)
    return found


def _bisect(count: int, is_behind: Callable[[int], bool]) -> int:
    """The first of so many positions that is behind what is sought; `count` if none is."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if is_behind(middle):
            high = middle
        else:
            low = middle + 1
    return low
