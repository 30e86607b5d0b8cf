"""Room: how much of the disk the segments of a queue may take, and who is about to take some.

What a push takes is known when its frames are encoded. It is reserved before they are committed, so
that pushes of many threads cannot all count on the same room, and given back once they are written:
then it is part of the journal. Who finds too little left waits for those that are under way, and
sees what is left then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

from tidemill.errors import QueueFull
from tidemill.files.folder.folder import Folder
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.upkeep.maintenance import Maintenance

WhenFull: TypeAlias = Literal["refuse", "drop_oldest"]


class Room:
    """Keeps the segments of a folder within `bytes_max`; without one it takes no notice."""

    def __init__(
        self,
        folder: Folder,
        maintenance: Maintenance,
        *,
        bytes_max: int | None = None,
        when_full: WhenFull = "refuse",
    ) -> None:
        self._folder = folder
        self._maintenance = maintenance
        self._bytes_max = bytes_max
        self._when_full = when_full
        # Raises, or sets the frame aside; there once the queue is.
        self.handle_damage: Callable[[DamagedFrame], None]
        # Taken by itself: what takes a condition is Python code, which Ctrl-C may break off with
        # the lock taken, and nobody would give it back.
        self._mutex = threading.RLock()
        self._changed = threading.Condition(self._mutex)
        self._reserved: dict[object, int] = {}  # bytes, by whom they are for

    @contextmanager
    def reserved(self, needed: int) -> Iterator[None]:
        """Within it so many bytes can be written; `QueueFull` if there is no room for them."""
        owner = object()
        try:
            if needed:
                self.reserve(owner, needed)
            yield
        finally:
            try:
                self.release(owner)
            except BaseException:
                # An interrupt: others would wait for what nobody is going to write.
                self.release(owner)
                raise

    def try_reserve(self, owner: object, needed: int) -> bool:
        """Reserve so many bytes more, if they are free just now."""
        if self._bytes_max is None:
            return True
        with self._mutex:
            if not self._fits(needed, self._bytes_max):
                return False
            self._reserved[owner] = self._reserved.get(owner, 0) + needed
            return True

    def reserve(self, owner: object, needed: int) -> None:
        """Reserve so many bytes for somebody who has none yet: free disk if need be, or raise
        `QueueFull`.
        """
        bytes_max = self._bytes_max
        if bytes_max is None:
            return
        with self._mutex:
            if not self._fits(needed, bytes_max):
                self._check_that_it_may_ever(needed, bytes_max)
            while not self._fits(needed, bytes_max):
                if self._reserved:
                    self._changed.wait()
                else:
                    self._make_room(needed, bytes_max)
            self._reserved[owner] = needed

    def release(self, owner: object) -> None:
        """Reserve nothing more for somebody; a second time does no harm."""
        if self._bytes_max is not None:
            with self._mutex:
                self._reserved.pop(owner, None)
                self._changed.notify_all()

    def takes(self, segments_bytes: int) -> bool:
        """Whether an empty queue can take whole segments of so many bytes."""
        spare = 3 * self._folder.journal.segment_bytes
        return self._bytes_max is None or segments_bytes + spare <= self._bytes_max

    def _make_room(self, needed: int, bytes_max: int) -> None:
        self._maintenance.run_round()
        while not self._fits(needed, bytes_max):
            try:
                is_dropped = self._when_full == "drop_oldest" and self._maintenance.drop_oldest()
            except DamagedFrame as damage:
                self.handle_damage(damage)
                continue
            if not is_dropped:
                raise QueueFull(
                    f"{self._folder.path} holds {self._folder.journal.bytes} bytes of the "
                    f"{bytes_max} allowed; pop or delete items, or raise bytes_max"
                )

    def _check_that_it_may_ever(self, needed: int, bytes_max: int) -> None:
        """Raise `QueueFull` if the push would not fit into an empty queue either: before anything
        is dropped for it.
        """
        journal = self._folder.journal
        active, segment_bytes = journal.active, journal.segment_bytes
        if active.end + needed + journal.reserve <= journal.capacity(active.start):
            return  # It will, once others are gone: the active segment has room for it.
        if segment_bytes + self._new_segment_bytes(needed) + segment_bytes > bytes_max:
            raise QueueFull(
                f"a push of {needed} bytes can never fit into the {bytes_max} bytes that "
                f"{self._folder.path} may take; push in parts, or raise bytes_max"
            )

    def _new_segment_bytes(self, needed: int) -> int:
        """What a segment takes that is begun for so many bytes."""
        journal = self._folder.journal
        # It opens with about the same state as the one before.
        start = journal.active.start
        return max(journal.capacity(start), start + needed + journal.reserve)

    def _fits(self, needed: int, bytes_max: int) -> bool:
        journal = self._folder.journal
        active, reserved = journal.active, sum(self._reserved.values())
        grown = journal.bytes
        if active.end + needed + reserved + journal.reserve > journal.capacity(active.start):
            grown += self._new_segment_bytes(needed)
            # Each of the others may have to begin one, where what the last has left is too little.
            grown += 2 * reserved
        # A rewrite needs a segment of its own before it can give one back.
        return grown + journal.segment_bytes <= bytes_max
