"""The journal: the one append-only truth of a folder, in segments so that disk can be freed.

An operation is one contiguous run of records in one segment; several operations may share a write
and a sync. The order of effects when the active segment is full:

    1. the new segment is created, preallocated and opened with the state, written twice
    2. its file is synced, then the folder, so that it exists for good before anything relies on it
    3. the old segment is sealed; once synced it gets a summary, and its spine goes

Invariant: `synced` never runs ahead of the disk; a write after which the disk is in doubt poisons
the journal.

A segment is also full when it holds many records: opening reads those of the last one, one by one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from tidemill.errors import DiskFull, StorageFailed, TidemillError
from tidemill.files.disk.filesystem import Buffer, FileSystem
from tidemill.files.disk.open_files import OpenFiles, PooledFile
from tidemill.files.disk.storage import storage_errors, typed
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import ENVELOPE_BYTES, Kind, check_offset, make_place, padded
from tidemill.files.journal.draft import Draft, write_late
from tidemill.files.journal.head import HeadFile
from tidemill.files.journal.hold import Holds
from tidemill.files.journal.rest import Rest, reserve_of
from tidemill.files.journal.segment import Segment, segment_path, with_blanks
from tidemill.files.journal.segment_file import make_file, unmake_file
from tidemill.files.journal.spare import Spare
from tidemill.files.journal.spine import SpineEntry, SpineFile
from tidemill.limits import RECORDS_PER_SEGMENT_MAX, WRITTEN_OUT_BYTES_MAX

logger = logging.getLogger(__name__)

JOURNAL_NAME = "journal"  # of the folder that holds the segments

StateBytes: TypeAlias = bytes  # a state as it opens a segment


class Journal:
    """Appends operations; knows the segments."""

    def __init__(
        self,
        fs: FileSystem,
        files: OpenFiles,
        folder: Path,
        *,
        segment_bytes: int,
        epoch: int,
        describe_state: Callable[[list[int], int], bytes],
        head: HeadFile,
    ) -> None:
        self.fs = fs
        self._files = files
        self.folder = folder
        self.epoch = epoch
        self.segment_bytes = segment_bytes
        self.reserve = reserve_of(segment_bytes)
        self.segments: dict[int, Segment] = {}
        self.active: Segment  # the last of them, there once the journal was created or adopted
        self.retired: set[int] = set()  # of these, whose end is written, but which are still there
        self.synced = 0
        self.failure: TidemillError | None = None
        self.spare = Spare(fs, folder, segment_bytes=segment_bytes)
        self.holds = Holds(self.spare.retire)
        self._head = head
        self._describe_state = describe_state
        self._rest = Rest(0, 0)  # of the active segment
        self._room = 0  # up to where it can be appended to without further ado
        self._records = 0  # in the active segment
        self._spine = SpineFile(fs)
        self._unsynced: list[Segment] = []  # sealed, but not yet known to be on disk
        self.sync_lock = threading.Lock()  # held by whoever syncs, for as long as it takes

    @property
    def end(self) -> int:
        active = self.active
        return make_place(active.number, active.end)

    @property
    def bytes(self) -> int:
        """What the segments take on disk."""
        active = self.active
        # A list, because segments come and go while other threads ask.
        sealed = [segment.end for segment in list(self.segments.values()) if segment is not active]
        return sum(sealed) + max(active.end, self._rest.allocated)

    def capacity(self, start: int) -> int:
        """How large a segment may grow that opens with a state of `start` bytes: were that large
        and the rest not, every operation would have to roll.
        """
        return max(self.segment_bytes, start + self.segment_bytes // 2)

    def begin(self, total: int, next_seq: int, time_us: int, leaves: int | None) -> Draft:
        """Make room for `total` bytes, with some left (see `Operation`); a full disk shows here."""
        if self.failure is not None:
            self.check()
        active = self.active
        needed = total + (self.reserve if leaves is None else leaves)
        if active.end + needed > self._room:
            active = self._make_room(needed, leaves is not None)
        elif self._records >= RECORDS_PER_SEGMENT_MAX:
            active = self._roll_for_records(needed, leaves is not None)
        return Draft(active.number << 32 | active.end, self.synced, self.epoch, next_seq, time_us)

    def append(self, draft: Draft, sync: bool) -> None:
        """Write what was laid out; what is to be synced is on its way to the disk then, and
        `settle` waits for it.
        """
        active = self.active
        start, end = active.end, draft.place & 0xFFFFFFFF
        try:
            # Where there is nothing, it is the sync alone that somebody waits for.
            if end > start:
                behind = self._rest.behind(start, end, sync=sync)
                if draft.has_late_bodies:
                    write_late(active.file, draft, start)
                    if behind:
                        active.file.pwrite([behind], end)
                else:
                    parts = [*draft.parts, behind] if behind else draft.parts
                    active.file.pwrite(parts, start)
                    if sync and end - start <= WRITTEN_OUT_BYTES_MAX:
                        active.file.write_out(end - start, start)
        except OSError as error:
            failure = typed(error, "appending to", active.path)
            self._undo(active, failure)
            # Only of a full disk is it known that it does what it says.
            if not isinstance(failure, DiskFull):
                self.failure = failure
            raise failure from error
        except TidemillError as failure:
            # What is wrong with bytes that come from elsewhere says nothing about this file.
            self._undo(active, failure)
            raise
        active.end = end
        records, spine = draft.records, self._spine
        self._records += len(records)
        # The spine is written when the records are synced, for it vouches for no others.
        if spine.note(records) and not sync:
            spine.write(self.synced)

    @property
    def has_little_to_sync(self) -> bool:
        """Whether a sync would take no longer than the active segment takes, and nobody else is at
        one: upkeep may be, of segments that were never synced.
        """
        return not self._unsynced and not self.sync_lock.locked()

    def settle(self) -> None:
        """Make what was appended last, and let readers and the spine know. Called under the sync
        lock.
        """
        end, spine = self.end, self._spine
        entries = spine.pack(end)  # Made ready while the disk is at work.
        self._sync_all()
        if spine.put(entries):
            self._head.note(end)
        else:
            self._head.publish(end)

    def sync(self) -> None:
        """Make everything appended so far last."""
        with self.sync_lock:
            self._sync_all()
        self._head.publish(self.synced)

    def sync_ahead(self) -> None:
        """Bring to the disk what was appended so far, while others go on appending: the sync of an
        operation that everybody waits for has less to do then.
        """
        with self.sync_lock:
            if self.synced < self.end:
                self._sync_all()

    def _sync_all(self) -> None:
        """Called under the sync lock."""
        # Not before it is held: of two syncs that run into one failure, the system tells one.
        self.check()
        end = self.end
        for segment in self._unsynced:
            self._sync_file(segment)
        self._unsynced.clear()
        self._sync_file(self.active)
        self.synced = end

    def note_sync(self) -> None:
        """Let the spine know how far the disk is safe, when no record will say so."""
        self._spine.note([(self.end, 0, 0)])
        self._spine.write(self.synced)

    def finish_seals(self) -> None:
        """Sync the sealed segments that are not, give each its summary, give back what was
        allocated and not used, and drop its spine.
        """
        for segment in list(self.segments.values())[:-1]:
            if segment.summary is not None:
                continue
            with self.sync_lock:
                self.check()
                if segment in self._unsynced:
                    self._sync_file(segment)
                    self._unsynced.remove(segment)
                    self.synced = max(self.synced, make_place(segment.number, segment.end))
            with storage_errors("writing the summary of", segment.path):
                segment.finish(self.epoch)

    def doubt(self, cause: BaseException) -> None:
        """Write nothing more: an interrupt left it open what is on disk."""
        if self.failure is None:
            self.failure = StorageFailed("a write was interrupted")
            self.failure.__cause__ = cause

    def check(self) -> None:
        """Raise if an earlier failure leaves it open what is on disk."""
        if self.failure is not None:
            raise StorageFailed(
                "an earlier failure leaves the disk in doubt; close the queue and open it again to "
                f"verify it ({self.failure})"
            ) from self.failure

    def create_first(self) -> None:
        """Start an empty journal."""
        self._start_segment(1, 0, last_room=False)

    def adopt(
        self, segments: list[Segment], spine: list[SpineEntry], *, keeps_spine: bool = False
    ) -> None:
        """Take over what recovery found; the last segment is active again, and all of it is on
        disk. A spine that is kept stays as it lies there, and gets no more entries.
        """
        self.segments = {segment.number: segment for segment in segments}
        active = self.active = segments[-1]
        active.file.keep_open()
        with storage_errors("opening", self.folder):
            self.spare.sweep()
        self._set_rest(active, active.file.size())
        self.synced = self.end
        # Before the spine begins anew: until then, the old one says how far readers may go.
        self._head.publish(self.synced)
        if not keeps_spine:
            self._spine.begin(active.spine_path)
            self._spine.note([entry[:3] for entry in spine])
            self._spine.write(self.synced)
        self._records = len(spine)

    def remove(self, numbers: Sequence[int]) -> None:
        """Unlink retired segments. The operation that retired them is on disk by now."""
        # All are forgotten before the first is unlinked, which may fail: what opening finds of them
        # then, it removes.
        segments = [self.segments.pop(number) for number in numbers]
        self.retired.difference_update(numbers)
        with self.sync_lock:
            self._unsynced = [one for one in self._unsynced if one not in segments]
        self.holds.remove(segments)

    def close(self, *, clean: bool) -> None:
        """Close the files; a clean close gives preallocated space back."""
        try:
            if clean:
                self.sync()
                self.note_sync()
                active = self.active
                with storage_errors("closing", active.path):
                    if self._rest.allocated > active.end:
                        active.file.truncate(active.end)
                        active.file.sync()
                    # Nothing more will be written that could vouch for the last records.
                    self._spine.sync()
                    self.spare.refuse()
                self.holds.close()
        finally:
            self.spare.close()
            for segment in self.segments.values():
                segment.file.close()
            self._spine.close()
            self._head.close()

    def roll(self, needed: int = 0, last_room: bool = True) -> Segment:
        """Go on in a new segment; the one before is sealed."""
        number = self.active.number + 1
        return self._start_segment(number, needed, last_room=last_room)

    def seal_soon(self, *, records_min: int = 0) -> None:
        """Let what is written next begin a new segment, if this one holds more than so many
        records.
        """
        if self._records > records_min:
            self._records = RECORDS_PER_SEGMENT_MAX

    def adoptee(self, number: int, segment: Segment, origin: Origin) -> Segment:
        """A segment of another journal, as it will be here once its file has the name."""
        file = self._files.existing(segment_path(self.folder, number))
        ours = Segment(self.fs, self.folder, number, file, start=segment.start, end=segment.end)
        ours.origin = origin
        return ours

    def roll_behind(self, adopted: Sequence[Segment], state: StateBytes) -> Segment:
        """Go on in a new segment behind adopted ones, which are on disk. It opens with `state`,
        which retires all that stood before them.
        """
        self.sync()
        before, last = self.synced, adopted[-1]
        # Also vouches for the adopted ones.
        self.synced = make_place(last.number, last.end)
        try:
            return self._start_segment(last.number + 1, 0, state)
        except TidemillError:
            self.synced = before
            raise

    def _start_segment(
        self, number: int, needed: int, state: StateBytes | None = None, *, last_room: bool = True
    ) -> Segment:
        previous_end = self.active.end if self.segments else 0
        # A list, because upkeep removes segments meanwhile.
        standing = [other for other in list(self.segments) if other not in self.retired]
        if state is None:
            state = self._describe_state(standing, previous_end)
        state = with_blanks(state, self.segment_bytes)
        size = 2 * padded(ENVELOPE_BYTES + len(state))
        allocated = max(self.capacity(size), size + needed)
        check_offset(allocated)
        draft = Draft(make_place(number, 0), self.synced, self.epoch, next_seq=0, time_us=0)
        for commit in (False, True):
            draft.add(Kind.STATE, state, commit=commit)
        path = segment_path(self.folder, number)
        has_spare = self.spare.bytes > 0
        try:
            file, allocated, old_to = self._create(path, allocated, draft.parts)
        except DiskFull:
            if self.failure is not None or not (last_room or has_spare):
                raise
            self.spare.drop()
            # To pop is how room is made, and needs next to none.
            least = size + needed if last_room else allocated
            file, allocated, old_to = self._create(path, least, draft.parts)
        segment = Segment(self.fs, self.folder, number, file, start=size, end=size)
        if self.segments:
            self.active.seal()
        with self.sync_lock:
            if self.segments and self.synced < self.end:
                self._unsynced.append(self.active)
            if not self._unsynced:
                self.synced = make_place(number, size)
        self.segments[number] = segment
        self.active = segment
        self._records = len(draft.records)
        self._set_rest(segment, allocated, old_to)
        self._spine.begin(segment.spine_path)
        self._spine.note(draft.records)
        # Of what came before, all that has to be synced has been.
        self._head.publish(make_place(number, size))
        return segment

    def _create(
        self, path: Path, length: int, parts: Sequence[Buffer]
    ) -> tuple[PooledFile, int, int]:
        """(the file of a segment with its first bytes, so that it lasts; its length; up to where it
        may hold old bytes).
        """
        spare = self.spare.take()
        try:
            return make_file(self.fs, self._files, path, length, parts, spare)
        except OSError as error:
            failure = typed(error, "creating", path)
            try:
                unmake_file(self.fs, path, spare)
            except OSError:
                self.failure = failure
            # It must be gone for good before anything else is written, or a crash could bring it
            # back, and with it a state that is no longer the last. Only of a full disk is it known
            # that it does what it says.
            if not isinstance(failure, DiskFull):
                self.failure = failure
            self._head.undo()
            raise failure from error

    def _allocate(self, segment: Segment, needed: int, last_room: bool) -> None:
        """Reserve room before writing, so that a full disk is noticed while nothing has changed."""
        least = segment.end + needed
        wanted = max(self.capacity(segment.start), least)
        check_offset(wanted)
        try:
            with storage_errors("growing", segment.path):
                segment.file.allocate(wanted)
        except DiskFull:
            if not (last_room or self.spare.bytes):  # as in a new segment
                raise
            wanted = least if last_room else wanted
            with storage_errors("growing", segment.path):
                self.spare.drop()
                segment.file.allocate(wanted)
        self._set_rest(segment, wanted, self._rest.old_to)

    def _roll_for_records(self, needed: int, last_room: bool) -> Segment:
        """Go on in a new segment because this one holds many records, though it has room. On a full
        disk, what makes room goes on in this one: opening takes longer, and that is all.
        """
        try:
            return self.roll(needed, last_room)
        except DiskFull as error:
            if self.failure is not None or not last_room:
                raise
            logger.debug("%s gets more records than it should: %s", self.active.path, error)
            # So that not each of them tries again.
            self._records -= RECORDS_PER_SEGMENT_MAX // 16
            return self.active

    def _make_room(self, needed: int, last_room: bool) -> Segment:
        """The segment to append so many bytes to: the active one, grown if need be, or the next."""
        active = self.active
        if active.end + needed > self.capacity(active.start) and active.end > active.start:
            return self.roll(needed, last_room)
        if active.end + needed > self._rest.allocated:
            self._allocate(active, needed, last_room)
        return active

    def _set_rest(self, segment: Segment, allocated: int, old_to: int = 0) -> None:
        self._rest = Rest(segment.end, allocated, old_to)
        self._room = min(allocated, self.capacity(segment.start))

    def _undo(self, segment: Segment, failure: TidemillError) -> None:
        """Take back what a failed write may have left."""
        try:
            # What was half written must not be mistaken for an operation later on, not after a
            # crash either.
            segment.file.truncate(segment.end)
            segment.file.sync()
            self._set_rest(segment, segment.end)
        except OSError:
            self.failure = failure
        self._head.undo()

    def _sync_file(self, segment: Segment) -> None:
        try:
            segment.file.sync()
        except OSError as error:
            # A second attempt could succeed without having written anything: pages that failed
            # count as clean.
            self.failure = typed(error, "syncing", segment.path)
            raise self.failure from error
