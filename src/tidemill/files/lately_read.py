"""The frames of the sealed segments that were asked for last.

They are read from the summaries, whole, since it is all of them that the checksum covers. Whoever
goes from bucket to bucket mostly stays with a few segments for a while.
"""

from __future__ import annotations

import numpy as np

from tidemill.files.frame_table import ENTRY, Entries
from tidemill.files.segment import Segment
from tidemill.files.summary import Summary
from tidemill.limits import MIB

_BYTES_MAX = 4 * MIB  # beside the last one, which may be of any size: see RECORDS_PER_SEGMENT_MAX


class LatelyRead:
    """Reads the frames of segments, and keeps those of the last few."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Summary, Entries]] = {}  # by segment, the last one read last

    def frames(self, segment: Segment, low: int, high: int) -> Entries:
        """The frames of the buckets from `low` to `high`. Unless the segment is active, they are
        sorted by bucket, least key and seq.
        """
        if segment.directory is None:
            rows = segment.entries
            return rows[(rows["bucket"] >= low) & (rows["bucket"] <= high)]
        found = segment.rows_of(low, high)
        return self._all(segment)[found] if found.start < found.stop else np.empty(0, ENTRY)

    def _all(self, segment: Segment) -> Entries:
        summary = segment.summary
        if summary is None:
            return segment.entries  # They are still in memory.
        kept = self._kept.pop(segment.number, None)
        if kept is None or kept[0] is not summary:
            kept = summary, segment.entries
        while sum([entries.nbytes for _, entries in self._kept.values()]) > _BYTES_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[segment.number] = kept
        return kept[1]
