"""The journal: the one append-only truth of a folder, rolled into segments so that disk can be freed.

An operation is one contiguous run of records in one segment; several operations may share a write and a sync. The order
of effects when the active segment is full:

    1. the new segment is created, preallocated and opened with the state, written twice
    2. its file is synced, then the folder, so that it exists for good before anything relies on it
    3. the old segment is sealed; once synced it gets a summary, and its spine goes

Invariant: `synced` never runs ahead of the disk; a write after which the disk is in doubt poisons the journal.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from tidemill.errors import StorageFailed, TidemillError, TooLarge
from tidemill.files.filesystem import Buffer, File, FileSystem
from tidemill.files.record import Kind, Record, make_place, pack_envelope, small_record
from tidemill.files.segment import Segment, segment_path
from tidemill.files.spine import ENTRY_BYTES, SpineEntry, pack_entries
from tidemill.files.storage import storage_errors, typed

logger = logging.getLogger(__name__)

_OFFSET_MAX = 2**32 - 1


class Journal:
    """Appends operations; knows the segments."""

    def __init__(
        self,
        fs: FileSystem,
        folder: Path,
        *,
        segment_bytes: int,
        epoch: int,
        describe_state: Callable[[list[int], int], bytes],
    ) -> None:
        self.fs = fs
        self.folder = folder
        self.epoch = epoch
        self.segment_bytes = segment_bytes
        self.segments: dict[int, Segment] = {}
        self.synced = 0
        self.failure: TidemillError | None = None
        self._describe_state = describe_state
        self._allocated = 0  # bytes of the active segment that are really there
        self._spine: File | None = None
        self._spine_end = 0
        self._unsynced: list[Segment] = []  # sealed, but not yet known to be on disk
        self._sync_lock = threading.Lock()

    @property
    def active(self) -> Segment:
        return self.segments[max(self.segments)]

    @property
    def end(self) -> int:
        active = self.active
        return make_place(active.number, active.end)

    @property
    def bytes(self) -> int:
        """What the segments take on disk."""
        active = self.active
        sealed = sum(segment.end for segment in self.segments.values() if segment is not active)
        return sealed + max(active.end, self._allocated)

    def append(self, operations: Sequence[Sequence[Record]], *, sync: bool) -> list[list[int]]:
        """Write the operations, each wholly or not at all; returns the place of every record."""
        self.check()
        total = sum(record.total_bytes for records in operations for record in records)
        active = self.active
        if active.end + total > self.segment_bytes and active.end > active.start:
            active = self._roll(total)
        elif active.end + total > self._allocated:
            self._allocate(active, total)
        parts: list[Buffer] = []
        places: list[list[int]] = []
        spine: list[tuple[int, int, int]] = []
        place = make_place(active.number, active.end)
        for records in operations:
            last = len(records) - 1
            here = []
            for position, record in enumerate(records):
                parts.append(
                    pack_envelope(
                        record,
                        commit=position == last,
                        place=place,
                        synced=self.synced,
                        epoch=self.epoch,
                    )
                )
                parts.extend(record.parts)
                if record.padding:
                    parts.append(record.padding)
                here.append(place)
                spine.append((place, record.total_bytes, record.rows))
                place += record.total_bytes
            places.append(here)
        self._write(active, parts, total)
        active.end += total
        if sync:
            self.sync()
        self._append_spine([SpineEntry(*entry, self.synced) for entry in spine])
        return places

    def sync(self) -> None:
        """Make everything appended so far last."""
        self.check()
        with self._sync_lock:
            for segment in self._unsynced:
                self._sync_file(segment)
            self._unsynced.clear()
            self._sync_file(self.active)
            self.synced = self.end

    def note_sync(self) -> None:
        """Let the spine know how far the disk is safe, when no record will say so."""
        self._append_spine([SpineEntry(self.end, 0, 0, self.synced)])

    def finish_seals(self) -> None:
        """Sync the sealed segments that are not, give each its summary, and drop its spine."""
        for segment in list(self.segments.values())[:-1]:
            if segment.summary is not None:
                continue
            self.check()
            with self._sync_lock:
                if segment in self._unsynced:
                    self._sync_file(segment)
                    self._unsynced.remove(segment)
                    self.synced = max(self.synced, make_place(segment.number, segment.end))
            with storage_errors("writing the summary of", segment.path):
                segment.write_summary(self.epoch)
                self._drop(segment.spine_path)
                self.fs.sync_folder(self.folder)

    def check(self) -> None:
        """Raise if an earlier failure leaves it open what is on disk."""
        if self.failure is not None:
            raise StorageFailed(
                "an earlier failure leaves the disk in doubt; close the queue and open it again to "
                f"verify it ({self.failure})"
            ) from self.failure

    def create_first(self) -> None:
        """Start an empty journal."""
        self._start_segment(1, 0)

    def adopt(self, segments: list[Segment], spine: list[SpineEntry]) -> None:
        """Take over what recovery found; the last segment is active again, and all of it is on disk."""
        self.segments = {segment.number: segment for segment in segments}
        active = self.active
        self._allocated = active.file.size()
        self.synced = self.end
        self._open_spine(active)
        self._append_spine([entry._replace(synced=self.synced) for entry in spine])

    def remove(self, numbers: Sequence[int]) -> None:
        """Unlink retired segments. The operation that retired them is on disk by now."""
        for number in numbers:
            segment = self.segments.pop(number)
            with self._sync_lock:
                if segment in self._unsynced:
                    self._unsynced.remove(segment)
            with storage_errors("removing", segment.path):
                segment.file.close()
                self.fs.unlink(segment.path)
                self._drop(segment.summary_path)
                self._drop(segment.spine_path)
        with storage_errors("syncing", self.folder):
            self.fs.sync_folder(self.folder)

    def close(self, *, clean: bool) -> None:
        """Close the files; a clean close gives preallocated space back."""
        if clean:
            self.sync()
            self.note_sync()
            active = self.active
            if self._allocated > active.end:
                with storage_errors("closing", active.path):
                    active.file.truncate(active.end)
                    active.file.sync()
        for segment in self.segments.values():
            segment.file.close()
        if self._spine is not None:
            self._spine.close()

    def _roll(self, needed: int) -> Segment:
        old = self.active
        fresh = self._start_segment(old.number + 1, needed)
        old.seal()
        return fresh

    def _start_segment(self, number: int, needed: int) -> Segment:
        previous_end = self.active.end if self.segments else 0
        state = self._describe_state(list(self.segments), previous_end)
        opening = small_record(Kind.STATE, state)
        size = 2 * opening.total_bytes
        allocated = max(self.segment_bytes, size + needed)
        _check_offset(allocated)
        path = segment_path(self.folder, number)
        with storage_errors("creating", path):
            file = self.fs.open(path, create=True)
            try:
                file.allocate(allocated)
                parts: list[Buffer] = []
                for offset, commit in ((0, False), (opening.total_bytes, True)):
                    place = make_place(number, offset)
                    parts.append(
                        pack_envelope(
                            opening,
                            commit=commit,
                            place=place,
                            synced=self.synced,
                            epoch=self.epoch,
                        )
                    )
                    parts += [*opening.parts, opening.padding]
                file.pwrite(parts, 0)
                file.sync()
                self.fs.sync_folder(self.folder)
            except OSError:
                # Nothing refers to the new segment yet; without it the journal is what it was.
                file.close()
                self._drop(path)
                raise
        segment = Segment(self.fs, self.folder, number, file, start=size, end=size)
        if self.segments:
            previous = self.active
            if self.synced < self.end:
                self._unsynced.append(previous)
        else:
            self.synced = make_place(number, size)
        if not self._unsynced:
            self.synced = make_place(number, size)
        self.segments[number] = segment
        self._allocated = allocated
        self._open_spine(segment)
        return segment

    def _allocate(self, segment: Segment, needed: int) -> None:
        """Reserve room before writing, so that a full disk is noticed while nothing has changed."""
        wanted = max(self.segment_bytes, segment.end + needed)
        _check_offset(wanted)
        with storage_errors("growing", segment.path):
            segment.file.allocate(wanted)
        self._allocated = wanted

    def _write(self, segment: Segment, parts: Sequence[Buffer], total: int) -> None:
        try:
            segment.file.pwrite(parts, segment.end)
        except OSError as error:
            failure = typed(error, "appending to", segment.path)
            try:
                # What was half written must not be mistaken for an operation later on.
                segment.file.truncate(segment.end)
                segment.file.allocate(self._allocated)
            except OSError:
                self.failure = failure
            raise failure from error

    def _sync_file(self, segment: Segment) -> None:
        try:
            segment.file.sync()
        except OSError as error:
            # A second attempt could succeed without having written anything: pages that failed count as clean.
            self.failure = typed(error, "syncing", segment.path)
            raise self.failure from error

    def _open_spine(self, segment: Segment) -> None:
        if self._spine is not None:
            self._spine.close()
        with storage_errors("creating", segment.spine_path):
            self._drop(segment.spine_path)
            self._spine = self.fs.open(segment.spine_path, create=True)
        self._spine_end = 0

    def _append_spine(self, entries: Sequence[SpineEntry]) -> None:
        if self._spine is None:
            return
        try:
            self._spine.pwrite([pack_entries(entries)], self._spine_end)
        except OSError as error:
            # The operation itself is written; only the help in finding damage ends here.
            logger.warning("the spine %s ends early: %s", self.active.spine_path, error)
            self._spine.close()
            self._spine = None
        self._spine_end += ENTRY_BYTES * len(entries)

    def _drop(self, path: Path) -> None:
        if path.name in self.fs.list_folder(path.parent):
            self.fs.unlink(path)


def _check_offset(size: int) -> None:
    if size > _OFFSET_MAX:
        raise TooLarge(f"one operation may take {_OFFSET_MAX} bytes at most, this one needs {size}")
