"""Segments that somebody still reads: they stay on disk until the last of their readers lets go.

A scan goes on for as long as its reader likes, while upkeep retires the segments it reads from. To
retire a segment is a matter of the journal; only that its files go waits for the scan. If the
process dies meanwhile, opening finds the segments retired and removes them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence

from tidemill.errors import TidemillError
from tidemill.files.journal.segment import Segment

logger = logging.getLogger(__name__)


class Hold:
    """Keeps segments until it is released, or nobody refers to it any more."""

    __slots__ = ("_holds", "segments")

    def __init__(self, holds: Holds, segments: Sequence[Segment]) -> None:
        self._holds = holds
        self.segments = segments

    def release(self) -> None:
        """Let the segments go; a second time does no harm."""
        segments, self.segments = self.segments, ()
        if segments:
            self._holds.release(segments)

    def __del__(self) -> None:
        try:
            self.release()
        except (TidemillError, OSError) as error:
            # Nobody is left to tell; what stays on disk goes when the queue is opened next.
            logger.warning("retired segments stay for now: %s", error)


class Holds:
    """Who holds which segments, and those that wait to be removed.

    A hold may end wherever the interpreter collects garbage, also in the middle of a call here. So
    what is released is only noted, and whoever has the lock deals with it.
    """

    def __init__(self, remove: Callable[[list[Segment]], None]) -> None:
        self._remove = remove  # takes the files of segments away
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._counts: Counter[Segment] = Counter()
        self._leaving: list[Segment] = []  # retired, but held
        self._released: deque[Sequence[Segment]] = deque()

    def hold(self, segments: Sequence[Segment]) -> Hold:
        """Keep these segments. The caller makes sure that none of them is retired meanwhile."""
        with self._lock:
            self._counts.update(segments)
        self._settle()
        return Hold(self, segments)

    def release(self, segments: Sequence[Segment]) -> None:
        """Called by a hold that ends."""
        # What os.fork() copied is not ours to end.
        if os.getpid() == self._pid:
            self._released.append(segments)
            self._settle()

    def remove(self, segments: Sequence[Segment]) -> None:
        """Take the files of these segments away, now or when the last hold on them ends."""
        with self._lock:
            free = [segment for segment in segments if not self._counts[segment]]
            self._leaving += [segment for segment in segments if self._counts[segment]]
        self._remove(free)
        self._settle()

    @property
    def is_anyone_left(self) -> bool:
        """Whether somebody still reads from segments that are retired."""
        self._settle()
        with self._lock:
            is_anyone_left = bool(self._leaving)
        self._settle()
        return is_anyone_left

    def close(self) -> None:
        """Wait no longer: the handle goes, and with it whoever reads through it."""
        with self._lock:
            leaving, self._leaving = self._leaving, []
            self._counts.clear()
        self._remove(leaving)

    def _settle(self) -> None:
        """Count what was released, and remove what nobody holds any more."""
        # Whoever has the lock comes back here, so that nothing is left lying; when the handle goes,
        # all of it goes.
        while self._released and self._lock.acquire(blocking=False):
            try:
                while self._released:
                    self._counts.subtract(self._released.popleft())
                self._counts = +self._counts
                free = [one for one in self._leaving if not self._counts[one]]
                self._leaving = [one for one in self._leaving if self._counts[one]]
            finally:
                self._lock.release()
            if free:
                self._remove(free)
