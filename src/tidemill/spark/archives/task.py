"""What a task does for an archiver: it stores segments under the archiver's epoch, and tells which.

What an attempt stored that does not count, because another was faster or the driver died, is an
orphan like any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tidemill.log.archive.archive import Archive
from tidemill.log.archive.compacting import rows_of
from tidemill.log.archive.manifest import Segment
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import SegmentWriter, Sizes
from tidemill.log.opening import open_store


@dataclass(frozen=True, slots=True)
class Place:
    """Where the archive is, and for whom it is written; plain, for it travels to the tasks."""

    url: str  # of the archive
    epoch: int  # of the archiver
    sizes: Sizes

    def opened(self) -> tuple[Archive, SegmentWriter]:
        """The archive as it is now; raises `Fenced` if the archiver is no longer the one."""
        archive = Archive(open_objects(self.url))
        writer = SegmentWriter(archive, self.epoch, self.sizes)
        writer.current(archive.look())
        return archive, writer


@dataclass(frozen=True, slots=True)
class StoreRange:
    """Rows `start` up to `end` of a log."""

    place: Place
    log: str
    start: int
    end: int

    def run(self) -> Iterator[Segment]:
        """Store them, as one segment or several."""
        _, writer = self.place.opened()
        is_folder = self.log.startswith("/")
        options = {"read_only": True} if is_folder else {"create": False}
        with open_store(self.log, schema=None, **options) as log:
            yield from writer.store(log.hot, self.start, self.end)


@dataclass(frozen=True, slots=True)
class StoreGroup:
    """Small segments side by side, which are to be one."""

    place: Place
    group: tuple[Segment, ...]

    def run(self) -> Iterator[Segment]:
        """Store their rows as one segment."""
        archive, writer = self.place.opened()
        yield writer.put(rows_of(archive, self.group))
