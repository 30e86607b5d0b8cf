"""What upkeep has to know of a sealed segment: how much is in it, and how much of that is alive.

What never changes is remembered, and a segment that some fork has yet to begin is wholly alive,
which its bounds tell. So a round reads the summaries of the segments that are being consumed, and
not of all there are.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.files.folder.folder import Folder
from tidemill.files.format.frame_table import FrameList
from tidemill.files.format.record import make_place
from tidemill.files.journal.segment import Segment
from tidemill.files.state.state import EVERYONE
from tidemill.limits import TINY_FRAME_BYTES, TINY_FRAMES_MIN


class SegmentFacts(NamedTuple):
    """What upkeep decides by."""

    number: int
    data_bytes: int
    frames: int
    parts: int  # of buckets, by audience: each has a frame of its own
    items: int
    alive: int  # of its items, how many the fork with the most to do may need, by whole frames

    @property
    def is_tiny(self) -> bool:
        """Whether its frames are many and small."""
        return (
            self.frames >= max(TINY_FRAMES_MIN, 4 * self.parts)
            and self.data_bytes < TINY_FRAME_BYTES * self.frames
        )


class _Constants(NamedTuple):
    """What stays the same as long as the segment is there, and no record of it is set aside."""

    frames: int
    parts: int
    items: int
    audiences: frozenset[int]
    keys: tuple[int, int]
    seqs: tuple[int, int]


class FactFinder:
    """Looks at the sealed segments of a folder, round after round."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._constants: dict[int, _Constants] = {}
        self._set_aside = 0  # how many records were when they were noted

    def of(self, segment: Segment, acked: int) -> SegmentFacts:
        """The facts of a sealed segment; consumers are done up to the seq `acked`."""
        folder, number = self._folder, segment.number
        # The guard is let go between segments, so that nobody waits for all of them.
        with folder.guard:
            if self._set_aside != len(folder.state.quarantined):
                self._set_aside = len(folder.state.quarantined)
                self._constants.clear()
            known = self._constants.get(number)
            if known is not None and self._is_untouched(number, known):
                return _facts(segment, known, known.items)
        ahead = folder.index.read_segments_ahead([number], folder.guard)
        with folder.guard:
            frames = folder.index.frames_of_segment(number, ahead)
            known = self._constants[number] = _constants(frames)
            alive = max(
                int(cursor.live_frames(frames).rows["rows"].sum())
                for cursor in folder.cursors.values()
            )
        unread = frames.rows["seq_max"] > acked
        return _facts(segment, known, max(alive, int(frames.rows["rows"][unread].sum())))

    def forget_gone(self) -> None:
        """Drop what was remembered of segments that are gone."""
        standing = self._folder.journal.segments
        self._constants = {one: it for one, it in self._constants.items() if one in standing}

    def audiences(self) -> set[int]:
        """Whom the frames of all segments are for that are there now. Called under the guard."""
        folder = self._folder
        found: set[int] = set()
        # A list, because a push may begin a segment meanwhile.
        for number in list(folder.journal.segments):
            known = self._constants.get(number)
            if known is None:  # begun since it was looked at, or still active
                known = _constants(folder.index.frames_of_segment(number))
            found |= known.audiences
        return found

    def _is_untouched(self, number: int, known: _Constants) -> bool:
        """Whether some fork has consumed nothing of a segment. Called under the guard."""
        if known.audiences != {EVERYONE}:
            return False
        place = make_place(number, 0)
        return any(
            not cursor.fork.cuts.touches(place, known.keys, known.seqs)
            for cursor in self._folder.cursors.values()
        )


def _facts(segment: Segment, known: _Constants, alive: int) -> SegmentFacts:
    return SegmentFacts(segment.number, segment.end, known.frames, known.parts, known.items, alive)


def _constants(frames: FrameList) -> _Constants:
    rows = frames.rows
    if not len(rows):
        return _Constants(0, 0, 0, frozenset(), (0, 0), (0, 0))
    pairs = set(zip(rows["bucket"].tolist(), rows["audience"].tolist(), strict=True))
    return _Constants(
        len(rows),
        len(pairs),
        int(rows["rows"].sum()),
        frozenset(audience for _, audience in pairs),
        (int(rows["key_min"].min()), int(rows["key_max"].max())),
        (int(rows["seq_min"].min()), int(rows["seq_max"].max())),
    )
