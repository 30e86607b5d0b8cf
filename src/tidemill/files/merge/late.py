"""Frames that are pushed while a merge is open: their rows may belong before its windows, among
them or behind. Pure but for what it is given to read them.

    far    frames whose next row no pop has reached yet, in memory while there is room
    near   those that a pop has to look at, since they begin before its last row

Near frames become one run where they have few rows among the windows: every pop looks at each.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from tidemill.files.merge.pending import Kept, Loaded, Source
from tidemill.files.merge.run import merged, parts_until
from tidemill.limits import SMALL_FRAME_BYTES

_SMALL_MAX = 8  # far frames among which small ones are held; many are better read together
_NEAR_RUNS_MAX = 8  # that every pop looks at one by one
_JOINED_ROWS_MAX = 16_384  # made one run again and again
_JOINED_PART = 16  # of the memory of a merge that they may take: one of so many


class Late:
    """Frames since the windows were made, by the (key, seq) of their next rows."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._far_bytes = 0  # of those that are in memory
        self.far: list[Source] = []  # a heap
        self.near: list[Loaded] = []

    def __len__(self) -> int:
        return len(self.far) + len(self.near)

    def add(self, sources: Iterable[Source]) -> None:
        """Let frames be far; what is held of them stays so while there is room for more."""
        far, bytes_max = self.far, self._bytes_max // 4
        for source in sources:
            key, seq, entry, held = source
            if held is None:
                heapq.heappush(far, source)
            elif self._far_bytes < bytes_max and (
                entry.length > SMALL_FRAME_BYTES or len(far) < _SMALL_MAX
            ):
                self._far_bytes += entry.length
                heapq.heappush(far, source)
            else:
                heapq.heappush(far, Source(key, seq, entry))

    def draw_near(
        self, last: tuple[int, int], read: Callable[[list[Source]], list[Loaded]]
    ) -> bool:
        """Load the frames that begin before the row `last`; False if they are too much to hold."""
        unread: list[Source] = []
        wanted_bytes = 0
        while self.far and self.far[0][:2] <= last and wanted_bytes <= self._bytes_max // 4:
            source = heapq.heappop(self.far)
            loaded = source.loaded
            if loaded is None:
                unread.append(source)
                wanted_bytes += source.entry.length
            else:
                self.near.append(loaded)
                self._far_bytes -= source.entry.length
        if self.far and self.far[0][:2] <= last:
            for source in unread:
                heapq.heappush(self.far, source)
            return False
        self.near += read(unread)
        return True

    @property
    def is_crowded(self) -> bool:
        """Whether near frames are too many, or too large, to be looked at by every pop."""
        if len(self.near) > _NEAR_RUNS_MAX:
            return True
        return sum([run.nbytes for run, _ in self.near]) > self._bytes_max // 8

    def join(self, limit: tuple[int, int]) -> list[Loaded] | None:
        """Make one run of the near rows up to the row `limit`; what is left of the frames is
        returned, and no longer near. None if those rows are too many to do so again and again.
        """
        wanted = [(run, run.until(*limit) - run.position) for run, _ in self.near]
        joined_bytes = sum([run.nbytes * rows // run.rows for run, rows in wanted])
        joined_rows = sum([rows for _, rows in wanted])
        if joined_rows > _JOINED_ROWS_MAX or joined_bytes > self._bytes_max // _JOINED_PART:
            return None
        near = self.take_near()
        parts = parts_until([run for run, _ in near], limit)
        if parts:
            self.near.append(Loaded(merged(parts)[0], None))
        return [loaded for loaded in near if len(loaded.run)]

    def put_off(self, loaded: list[Loaded]) -> None:
        """Let the rest of near frames be far again; joined rows stay near."""
        for run, entry in loaded:
            if entry is None:
                self.near.append(Loaded(run, None))
            else:
                self.add([Source(*run.head, entry, run)])

    def drop_used(self) -> None:
        """Forget near runs that have no rows left."""
        self.near = [near for near in self.near if len(near.run)]

    def take_far(self, before: tuple[int, int] | None) -> tuple[list[Source], list[Loaded]]:
        """(frames to be read, runs in memory) that are far, and late no more. What begins behind
        the row `before`, or behind another frame that has to be read, is held no longer; None: it
        does not matter where they begin.
        """
        far, self.far = self.far, []
        if not self._far_bytes:
            return far, []
        self._far_bytes = 0
        unread = [source for source in far if source.held is None]
        if before is not None:
            first = min([before, *[source[:2] for source in unread]])
            far = [source if source[:2] <= first else Source(*source[:3]) for source in far]
            unread = [source for source in far if source.held is None]
        if 2 * len(unread) > len(far):
            # Most have to be read, and are in less time if none of them is here already: frames
            # that overlap no others are passed on as they are read.
            far = [
                Source(*source[:3]) if isinstance(source.held, Kept) else source for source in far
            ]
            unread = [source for source in far if source.held is None]
        return unread, [loaded for source in far if (loaded := source.loaded) is not None]

    def take_near(self) -> list[Loaded]:
        """The runs that are near, and late no more."""
        near, self.near = self.near, []
        return near
