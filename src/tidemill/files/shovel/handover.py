"""Moves all items of a queue to an empty one by giving it the segments, whatever they hold.

The order of effects:

    1. the source goes on in a new segment; all the others are synced and have their summaries
    2. the destination adopts those: see `adoption`. Its new segment opens with one state for all
       of its forks: what the source had consumed of these segments is consumed
    3. the source retires them, in one synced operation, and their names go

A crash before the middle of 2 leaves the items in the source, after 3 in the destination, and in
between in both. Nothing is read or written but what is known of the segments.

To the destination it is a push: items get seqs from its next one on, and the time of now. Neither
is written anywhere near the items, see `origin`.

Locks: of each queue the rounds of upkeep, then all its cursors, the queue whose path comes first
before the other; then the lead of one committer at a time. Nobody else holds a lock of one queue
while taking one of another.
"""

from __future__ import annotations

import errno
import logging
from contextlib import ExitStack, suppress
from typing import NamedTuple

from tidemill.errors import TidemillError
from tidemill.files.commit.operation import Retire
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.storage import storage_errors, typed
from tidemill.files.folder.folder import Folder
from tidemill.files.format.frame_table import Entries
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import make_place
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.cursor import Cursor
from tidemill.files.recovery.adoption import waiting_path
from tidemill.files.sharing.pointers import read_pointers
from tidemill.files.state.bucket import Custom
from tidemill.files.state.cut import Cut, Cuts
from tidemill.files.state.state import ROOT, ForkState, State
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import INT64_MAX

logger = logging.getLogger(__name__)

# Another file system, or one that knows no hard links, or not so many.
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class Lot(NamedTuple):
    """What the source gives away."""

    segments: list[Segment]  # those with items
    numbers: list[int]  # of all that go
    state: State  # of the source, as it was; not to be changed
    live: int
    arrived: int
    cuts: Cuts


def hand_over(
    source: QueueCore, cursor: Cursor, target: QueueCore, *, least_bytes: int
) -> int | None:
    """Move all items and return how many; None if that takes copying, or is not worth it."""
    if not _fits(source, cursor, target, least_bytes):
        return None
    with ExitStack() as held:
        for core in sorted((source, target), key=lambda one: one.folder.path):
            held.enter_context(core.maintenance.paused())
            held.enter_context(core.folder.all_cursors())
        source.folder.check_open()
        target.folder.check_open()
        # Looked at again, now that it stays so.
        if not _fits(source, cursor, target, least_bytes):
            return None
        lot = _detach(source.folder, cursor)
        # Pushes went on until then, and a consumer that began meanwhile has yet to read them.
        has_consumers = _has_consumers(source.folder) or _has_consumers(target.folder)
        if has_consumers or not lot.segments or not _adopt(target.folder, lot):
            return None
        _leave(source.folder, lot)
        # Wakes whoever waits for items, and has the spine vouch for the new segment.
        target.folder.sync()
    target.maintenance.after_push()
    return lot.live


def _fits(source: QueueCore, cursor: Cursor, target: QueueCore, least_bytes: int) -> bool:
    """Whether the destination is empty, and can take the segments as they are."""
    ours, theirs = source.folder, target.folder
    used_bytes = sum(segment.end for segment in list(ours.journal.segments.values()))
    with ours.guard:
        has_one_end = cursor.fork.id == ROOT and len(ours.state.forks) == 1
        has_items = cursor.fork.live > 0
    with theirs.guard:
        is_empty = not any(fork.live for fork in theirs.state.forks.values())
    # What consumers have yet to read stays where it is; and those of the destination read whatever
    # lies in a segment, also what was popped before it came.
    is_read = not _has_consumers(ours) and not _has_consumers(theirs)
    return (
        has_one_end
        and has_items
        and is_empty
        and is_read
        and used_bytes >= least_bytes
        and _same_disk(ours, theirs)
        and _same_bucket(ours, theirs)
        and ours.settings.versions == theirs.settings.versions
        and ours.journal.segment_bytes == theirs.journal.segment_bytes
        and target.room.takes(used_bytes)
    )


def _has_consumers(folder: Folder) -> bool:
    with storage_errors("reading the consumers of", folder.path):
        return bool(read_pointers(folder.fs, folder.path))


def _same_disk(ours: Folder, theirs: Folder) -> bool:
    """Whether a link could work; of two folders of the machine, the link itself tells."""
    if ours.fs is theirs.fs:
        return True
    return isinstance(ours.fs, LocalFileSystem) and isinstance(theirs.fs, LocalFileSystem)


def _same_bucket(ours: Folder, theirs: Folder) -> bool:
    one, other = ours.bucket, theirs.bucket
    if isinstance(one, Custom) and isinstance(other, Custom):
        return one.function is other.function and one == other
    return one == other


def _detach(folder: Folder, cursor: Cursor) -> Lot:
    """Seal all that the source has, so that it can be given away."""
    journal = folder.journal
    with folder.writing_alone():
        journal.check()
        if journal.active.end > journal.active.start:
            journal.roll()
        journal.sync()
        with folder.guard:
            state = folder.state
            live, arrived, cuts = cursor.fork.live, state.arrived, cursor.fork.cuts.copy()
            gone = journal.retired | {journal.active.number}
            numbers = [number for number in list(journal.segments) if number not in gone]
    journal.finish_seals()
    segments = [journal.segments[one] for one in numbers if _has_items(folder, cursor, one)]
    return Lot(segments, numbers, state, live, arrived, cuts)


def _has_items(folder: Folder, cursor: Cursor, number: int) -> bool:
    ahead = folder.index.read_segments_ahead([number], folder.guard)
    with folder.guard:
        return len(cursor.live_frames(folder.index.frames_of_segment(number, ahead))) > 0


def _leave(folder: Folder, lot: Lot) -> None:
    """Retire what was given away: nothing of it is left here."""
    folder.commit(Retire(lot.numbers, live={ROOT: 0}, arrived=lot.arrived))
    folder.journal.remove(lot.numbers)
    with folder.guard:
        folder.drop_moot_cuts()


def _adopt(folder: Folder, lot: Lot) -> bool:
    """Take over the segments; False if a link cannot be made. Nothing has changed then."""
    journal = folder.journal
    with folder.writing_alone():
        journal.check()
        with folder.guard:
            if any(fork.live for fork in folder.state.forks.values()):
                return False  # Somebody pushed in the last moment.
            plan = _Plan(folder, lot)
        adopted = [
            journal.adoptee(segment.number + plan.delta, segment, plan.origin_of(segment))
            for segment in lot.segments
        ]
        try:
            with storage_errors("adopting segments in", journal.folder):
                if not _link(folder, lot, adopted):
                    return False
                for segment, ours in zip(lot.segments, adopted, strict=True):
                    ours.sealed_with(plan.entries_of(segment))
                    ours.write_summary(journal.epoch)
                folder.fs.sync_folder(journal.folder)
            after = plan.state(adopted)
            numbers = [segment.number for segment in adopted]
            journal.roll_behind(adopted, after.to_json(numbers, adopted[-1].end))
        except TidemillError:
            if journal.failure is None:
                _undo(folder, adopted)
            # Otherwise the new segment may be on disk after all, and opening will tell.
            raise
        _rename(folder, adopted)
        try:
            before = _apply(folder, adopted, after)
        except TidemillError as cause:
            # The disk has them all, the handle some; opening again finds out.
            journal.doubt(cause)
            raise
        journal.remove(before)
    return True


class _Plan:
    """What the items will be called in the destination. Made under its guard."""

    def __init__(self, folder: Folder, lot: Lot) -> None:
        self._folder = folder
        self._lot = lot
        first = lot.segments[0].number
        # Gaps stay as they were, so that each segment still tells where the one before it ends; and
        # one stays free, for the one in front of them says nothing about ours. A number is never
        # the one it was written under, so that a file alone tells an adopted segment.
        self.delta = max(folder.journal.active.number + 2 - first, 1)
        seqs = [
            int(one.directory["seq_min"].min()) for one in lot.segments if one.directory is not None
        ]
        self._shift = folder.state.next_seq - min(seqs)
        self._time_us = max(folder.state.time_us, folder.clock.time_ns() // 1000)

    def origin_of(self, segment: Segment) -> Origin:
        before = segment.origin
        if before is None:
            return Origin(segment.number, self._shift, self._time_us)
        return Origin(before.number, before.shift + self._shift, self._time_us)

    def entries_of(self, segment: Segment) -> Entries:
        entries = segment.entries.copy()
        entries["seq_min"] += self._shift
        entries["seq_max"] += self._shift
        return entries

    def state(self, adopted: list[Segment]) -> State:
        """The state that the segment behind the adopted ones opens with."""
        now, theirs = self._folder.state, self._lot.state
        after = State()
        after.next_seq = max(now.next_seq, self._lot.arrived + self._shift + 1)
        after.time_us = self._time_us
        after.next_fork = now.next_fork
        after.dropped = now.dropped
        after.log = now.log
        after.audiences = dict(theirs.audiences)
        after.next_audience = max(now.next_audience, theirs.next_audience)
        numbers = {segment.number for segment in self._lot.segments}
        after.quarantined = {
            place + (self.delta << 32): rows
            for place, rows in theirs.quarantined.items()
            if place >> 32 in numbers
        }
        after.set_aside_bytes = {
            place + (self.delta << 32): length
            for place, length in theirs.set_aside_bytes.items()
            if place >> 32 in numbers
        }
        after.adopted = {one.number: one.origin for one in adopted if one.origin is not None}
        # To an adopted frame every fork is the source's root, which alone it was meant for.
        created = make_place(adopted[-1].number + 1, 0)
        for fork in now.forks.values():
            after.forks[fork.id] = ForkState(
                fork.id,
                fork.name,
                fork.created if fork.id == ROOT else created,
                (),
                self._lot.live,
                Cuts(tuple(self._cut(cut) for cut in self._lot.cuts.all())),
            )
        return after

    def _cut(self, cut: Cut) -> Cut:
        return Cut(
            cut.place + (self.delta << 32),
            cut.arrived + self._shift,
            cut.low,
            cut.high,
            cut.seq if cut.seq == INT64_MAX else cut.seq + self._shift,
        )


def _link(folder: Folder, lot: Lot, adopted: list[Segment]) -> bool:
    """Give the files a second name; False if there is no such thing between these folders."""
    _unlink_names(folder, adopted)
    for segment, ours in zip(lot.segments, adopted, strict=True):
        try:
            folder.fs.link(segment.path, waiting_path(folder.journal.folder, ours.number))
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            logger.info("segments of %s cannot be linked: %s", segment.path.parent, error)
            _unlink_names(folder, adopted)
            return False
    return True


def _undo(folder: Folder, adopted: list[Segment]) -> None:
    """Take the names away again. What cannot be, opening removes, for nothing refers to it."""
    with suppress(OSError):
        _unlink_names(folder, adopted)
        folder.fs.sync_folder(folder.journal.folder)


def _unlink_names(folder: Folder, adopted: list[Segment]) -> None:
    names = set(folder.fs.list_folder(folder.journal.folder))
    for segment in adopted:
        for path in (waiting_path(folder.journal.folder, segment.number), segment.summary_path):
            if path.name in names:
                folder.fs.unlink(path)


def _rename(folder: Folder, adopted: list[Segment]) -> None:
    """Give the files their proper names: what has happened cannot be undone."""
    journal = folder.journal
    try:
        for segment in adopted:
            folder.fs.rename(waiting_path(journal.folder, segment.number), segment.path)
        folder.fs.sync_folder(journal.folder)
    except OSError as error:
        # Opening finishes it; until then the handle knows less than the disk.
        journal.failure = typed(error, "adopting segments in", journal.folder)
        raise journal.failure from error


def _apply(folder: Folder, adopted: list[Segment], after: State) -> list[int]:
    """Let state, index and cursors know; returns the segments that went."""
    journal, state = folder.journal, folder.state
    with folder.guard:
        before = [number for number in list(journal.segments) if number < adopted[0].number]
        active = journal.segments.pop(journal.active.number)
        for segment in (*adopted, active):
            journal.segments[segment.number] = segment
        for number in before:
            folder.index.drop_segment(journal.segments[number])
        journal.retired.update(before)
        for segment in adopted:
            folder.index.add_segment(segment)
        state.become(after)
        for cursor in folder.cursors.values():
            cursor.forget()
    return before
