"""From frames that wait to rows in memory: which are read next, and how many in one go. Pure but
for what it is given to read them.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.merge.pending import Loaded, Pending, Source
from tidemill.files.merge.run import Run, gathered
from tidemill.limits import SMALL_FRAME_BYTES

_AHEAD_FRAMES = 64  # read before anyone asked for more than one
_AHEAD_BYTES = 1024 * 1024
_SHORT_RUNS_MIN = 8  # small ones that are worth being put together


class Loader:
    """Reads the frames of a merge that are pending."""

    def __init__(
        self,
        frames: FrameList,
        load: Callable[[list[Entry]], list[Run]],
        load_ones: Callable[[list[Entry]], Run | None],
        *,
        bytes_max: int,  # that the merge may hold
    ) -> None:
        self.pending = Pending(frames)
        self.is_worn = False  # whether frames had been used in part before the merge was opened
        self._load = load
        self._load_ones = load_ones
        self._frames_ahead = 0
        self._bytes_ahead = min(_AHEAD_BYTES, bytes_max // 4)

    def look_further_ahead(self) -> None:
        """Read more in one go from now on: whoever comes back is likely to go on. The first frame
        comes alone, so that no damage behind it keeps it back.
        """
        self._frames_ahead = min(2 * self._frames_ahead or 1, _AHEAD_FRAMES)

    @property
    def frames_ahead(self) -> int:
        """How many frames to read in one go, one at least, by the length of the next."""
        return max(min(self._frames_ahead, self._bytes_ahead // max(self.pending.length, 1)), 1)

    def whole_frames(self, key_max: int) -> list[Run]:
        """The next frames in order, if they overlap no others; none if there are no such up to
        `key_max`. Small ones come together: whoever pops several rows would have to put them
        together each time, and whoever keeps a row keeps no more than a few KB of others.
        """
        pending = self.pending
        while pending.head[0] <= key_max:
            sources = pending.pop_in_order(self._frames_ahead, self._bytes_ahead)
            if not sources:
                return []
            if len(sources) > 1 and sources[0].entry.rows == 1:
                run = self._load_ones([source.entry for source in sources])
                if run is not None:
                    return [run]
            runs = [run for run in self._runs_of(sources) if run.position < run.rows]
            length = sum([source.entry.length for source in sources])
            if len(runs) >= _SHORT_RUNS_MIN and length <= SMALL_FRAME_BYTES * len(runs):
                return [gathered([(run, run.position, run.rows) for run in runs])]
            if runs:
                return runs
        return []

    def next_frames(self, count: int, bytes_max: int) -> list[Loaded]:
        """The next frames, so many or so many bytes of them."""
        sources: list[Source] = []
        wanted_bytes = 0
        while len(sources) < count and self.pending and wanted_bytes <= bytes_max:
            sources.append(self.pending.pop())
            wanted_bytes += sources[-1].entry.length
        return self.read(sources)

    def read(self, sources: list[Source]) -> list[Loaded]:
        """The rest of frames on disk; those with nothing left are skipped."""
        found = zip(sources, self._runs_of(sources), strict=True)
        return [Loaded(run, source.entry) for source, run in found if len(run)]

    def _runs_of(self, sources: list[Source]) -> list[Run]:
        """The rest of frames on disk."""
        runs = self._load([source.entry for source in sources])
        for (key, seq, entry, _), run in zip(sources, runs, strict=True):
            if seq != entry.seq_min or key != entry.key_min:
                run.position = run.until(key, seq - 1)
            elif run.position:
                self.is_worn = True
        return runs
