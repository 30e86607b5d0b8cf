"""The frames of the sealed segments that were asked for last.

They are read from the summaries, whole, since it is all of them that the checksum covers. Whoever
goes from bucket to bucket mostly stays with a few segments for a while.

What is needed under the guard is read before it is taken: nobody should wait for somebody else's
disk. Under the guard only that is left to read whose summary was written since.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from tidemill.errors import Corrupt
from tidemill.files.format.frame_table import ENTRY, Entries
from tidemill.files.format.summary import Summary
from tidemill.files.journal.segment import Segment
from tidemill.limits import MIB

# Frames by segment, as its summary has them; of no use once that is another one.
ReadAhead: TypeAlias = Mapping[int, tuple[Summary, Entries]]
NOTHING_AHEAD: ReadAhead = MappingProxyType({})

_BYTES_MAX = 4 * MIB  # beside the last one, which may be of any size: see RECORDS_PER_SEGMENT_MAX


class LatelyRead:
    """Reads the frames of segments, and keeps those of the last few."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # never held while something is read
        self._kept: dict[int, tuple[Summary, Entries]] = {}  # by segment, the last one read last

    def read_ahead(self, segments: Iterable[Segment], low: int, high: int) -> ReadAhead:
        """What the summaries of these segments say of the buckets from `low` to `high`.

        A segment that was retired meanwhile is left out, and so is one whose summary is of no use:
        whoever asks `frames` for it is told.
        """
        found: dict[int, tuple[Summary, Entries]] = {}
        for segment in segments:
            summary = segment.summary
            if summary is None:
                continue
            try:
                entries = self._all(segment, summary)
            except (Corrupt, OSError):
                continue
            rows = entries[segment.rows_of(low, high)]
            # A part must not keep all of them in memory.
            found[segment.number] = summary, rows if len(rows) == len(entries) else rows.copy()
        return found

    def frames(
        self, segment: Segment, low: int, high: int, ahead: ReadAhead = NOTHING_AHEAD
    ) -> Entries:
        """The frames of the buckets from `low` to `high`, for which `ahead` was read. Unless the
        segment is active, they are sorted by bucket, least key and seq.
        """
        if segment.directory is None:
            rows = segment.entries
            return rows[(rows["bucket"] >= low) & (rows["bucket"] <= high)]
        summary = segment.summary
        known = ahead.get(segment.number)
        if known is not None and known[0] is summary:
            return known[1]
        found = segment.rows_of(low, high)
        if found.start == found.stop:
            return np.empty(0, ENTRY)
        if summary is None:
            return segment.entries[found]  # They are still in memory.
        try:
            return self._all(segment, summary)[found]
        except (Corrupt, OSError):
            return segment.entries[found]  # Makes the summary again, or raises.

    def _all(self, segment: Segment, summary: Summary) -> Entries:
        with self._lock:
            kept = self._kept.pop(segment.number, None)
        if kept is None or kept[0] is not summary:
            kept = summary, segment.read_entries(summary)
        with self._lock:
            while sum([entries.nbytes for _, entries in self._kept.values()]) > _BYTES_MAX:
                del self._kept[next(iter(self._kept))]
            self._kept[segment.number] = kept
        return kept[1]
