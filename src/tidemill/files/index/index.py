"""Which frames each bucket has, over all segments.

In memory there is one row for each segment and bucket; the frames themselves are asked for bucket
by bucket. The lock of the folder guards it: appliers change it, readers take what they need and let
go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager

from tidemill.files.format.frame_table import Entries, Entry, FrameList, buckets_of
from tidemill.files.index.holders import Holders
from tidemill.files.index.lately_read import NOTHING_AHEAD, LatelyRead, ReadAhead
from tidemill.files.journal.segment import Segment
from tidemill.files.state.state import State
from tidemill.limits import INT64_MAX, INT64_MIN


class Index:
    """Frames by bucket."""

    def __init__(self, segments: dict[int, Segment], state: State) -> None:
        self._segments = segments
        self._state = state
        self._lately_read = LatelyRead()
        self._holders = Holders((one.number, _buckets_of(one)) for one in segments.values())

    def add(self, entry: Entry) -> None:
        """Note a frame that was just written to the active segment."""
        table = self._segments[entry.segment].table
        if table is not None:
            table.append(entry)
        self._holders.hold(entry.bucket, entry.segment)

    def add_segment(self, segment: Segment) -> None:
        """Note all frames of a segment."""
        for bucket in _buckets_of(segment):
            self._holders.hold(bucket, segment.number)

    def hold(self, bucket: int, segment: int) -> None:
        """Note that a segment has frames of a bucket."""
        self._holders.hold(bucket, segment)

    def drop_segment(self, segment: Segment) -> None:
        """Forget the frames of a retired segment."""
        self._holders.drop(segment.number)

    def next_bucket(self, at_least: int) -> int | None:
        """The lowest bucket with frames that is not below `at_least`."""
        return self._holders.next_bucket(at_least)

    def buckets(self, low: int, high: int) -> list[int]:
        """The buckets with frames from `low` to `high`, both included."""
        return self._holders.buckets(low, high)

    def __len__(self) -> int:
        return len(self._holders)

    def segments(self) -> Sequence[int]:
        """The numbers of the segments that hold frames, ascending."""
        return self._holders.segments()

    def read_ahead(self, bucket: int, guard: AbstractContextManager[object]) -> ReadAhead:
        """What `frames` will want from disk; called without the guard, which it takes a moment."""
        with guard:
            segments = [self._segments[number] for number in self._holders.of(bucket)]
        return self._lately_read.read_ahead(segments, bucket, bucket)

    def frames(self, bucket: int, ahead: ReadAhead = NOTHING_AHEAD) -> FrameList:
        """The frames of one bucket."""
        numbers, read = self._holders.of(bucket), self._lately_read.frames
        return self._list([(n, read(self._segments[n], bucket, bucket, ahead)) for n in numbers])

    def read_segments_ahead(
        self, numbers: Iterable[int], guard: AbstractContextManager[object]
    ) -> ReadAhead:
        """What `frames_of_segments` will want from disk; called without the guard as well."""
        with guard:
            segments = [self._segments[number] for number in numbers if number in self._segments]
        # Not kept: upkeep looks at each of them once, and pops want the ones they have there.
        return LatelyRead().read_ahead(segments, INT64_MIN, INT64_MAX)

    def frames_of_segment(self, number: int, ahead: ReadAhead = NOTHING_AHEAD) -> FrameList:
        return self.frames_of_segments([number], ahead)

    def frames_of_segments(
        self, numbers: Iterable[int], ahead: ReadAhead = NOTHING_AHEAD
    ) -> FrameList:
        return self._list([(number, self._all_of(number, ahead)) for number in numbers])

    def _all_of(self, number: int, ahead: ReadAhead) -> Entries:
        segment = self._segments[number]
        known = ahead.get(number)
        if known is not None and known[0] is segment.summary:
            return known[1]
        return segment.entries

    def bounds(self, number: int) -> tuple[int, int, int]:
        """(least key, greatest key, least seq) of a segment; a cut beyond any says nothing."""
        segment = self._segments[number]
        rows = segment.entries if segment.directory is None else segment.directory
        if not len(rows):
            return INT64_MAX, INT64_MIN, INT64_MAX
        return int(rows["key_min"].min()), int(rows["key_max"].max()), int(rows["seq_min"].min())

    def last_seq(self, number: int) -> int:
        """The greatest seq of a segment; 0 if it has no frames."""
        segment = self._segments[number]
        rows = segment.entries if segment.directory is None else segment.directory
        return int(rows["seq_max"].max()) if len(rows) else 0

    def _list(self, parts: list[tuple[int, Entries]]) -> FrameList:
        """The frames of these parts, less the ones that were set aside."""
        frames = FrameList.of(parts)
        if self._state.quarantined:
            frames = frames.without(self._state.quarantined)
        return frames


def _buckets_of(segment: Segment) -> list[int]:
    return buckets_of(segment.entries if segment.directory is None else segment.directory)
