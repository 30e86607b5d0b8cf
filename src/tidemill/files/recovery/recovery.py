"""Opening a journal: from the files alone to the state they stand for.

Which segments are read whole:

    sealed, with a good summary        no     its directory is enough
    sealed, summary missing or bad     yes    and it gets a new one
    the last one                       yes    its end must be found
    not known to be synced             yes    power may have failed before its blocks were written

What is found wrong lies either before or behind the point that was known to be on disk (`vouched`:
the highest `synced` of any record or spine, or the end of a segment that has a summary). Behind it,
it is a torn tail, which nobody was promised: it is cut off, with all that follows. Before it, it is
damage: "abort" raises, "continue" sets the record aside.

What is kept is on disk, names and all, before anything is built on it: the process before may have
died between a write and its sync. Bytes that nobody vouches for are written again first, because
after a failed sync the kernel takes its pages for clean and a further sync would do nothing.

Invariant: recovery only ever removes bytes that no operation with a commit mark in good order
vouches for, so doing it twice, or crashing in the middle of it, leads to the same state.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.files import advice
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.format.record import Kind, make_place, split_place
from tidemill.files.journal.rest import END_MARK
from tidemill.files.journal.scan import Damage, Finding, Found, promised_behind, scan
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spine import SpineEntry, read_spine
from tidemill.files.recovery.adoption import settle
from tidemill.files.recovery.replay import Replay, set_aside_by
from tidemill.files.state.state import State, read_previous_end

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{16})\.(segment|summary|spine)")
_CHUNK_BYTES = 1024 * 1024


@dataclass(slots=True)
class Recovered:
    """What the files stand for."""

    state: State
    segments: list[Segment]
    spine: list[SpineEntry]  # of the last segment
    damages: list[Damage] = field(default_factory=list)  # not yet set aside
    retired: list[int] = field(default_factory=list)  # still on disk, to be unlinked
    torn_bytes: int = 0


class _Scanned:
    """One segment as it was read."""

    def __init__(self, segment: Segment, findings: list[Finding], spine: list[SpineEntry]) -> None:
        self.segment = segment
        self.findings = findings
        self.synced = max(
            [entry.synced for entry in spine]
            + [found.envelope.synced for found in findings if isinstance(found, Found)],
            default=0,
        )
        last = findings[-1] if findings else None
        if isinstance(last, Damage) and not last.length:
            offset = split_place(last.place)[1]
            promised = promised_behind(segment.file, segment.number, offset)
            self.synced = max(self.synced, promised)

    @property
    def opening(self) -> Found | None:
        """The state that opens the segment, from whichever of its two copies is whole."""
        for found in self.findings[:2]:
            if isinstance(found, Found) and found.envelope.kind is Kind.STATE:
                return found
        return None


class Recovery:
    """One opening of one journal."""

    def __init__(
        self,
        fs: FileSystem,
        files: OpenFiles,
        folder: Path,
        *,
        bucket_of: Callable[[int], int],
        tolerate_damage: bool,
    ) -> None:
        self._fs = fs
        self._files = files
        self._folder = folder
        self._bucket_of = bucket_of
        self._tolerate_damage = tolerate_damage
        self._adopted = settle(fs, folder)
        self._names = {name for name in fs.list_folder(folder) if _NAME.fullmatch(name)}
        self._segments: dict[int, Segment] = {}
        self._scanned: dict[int, _Scanned] = {}
        self._vouched = 0
        self._set_aside: dict[int, SpineEntry] = {}  # by place: records that were, where known

    def run(self) -> Recovered | None:
        """The recovered journal, or None if not even its first segment was finished."""
        self._open_all()
        self._drop_unfinished()
        if not self._segments:
            return None
        torn = self._cut_tail()
        self._drop_strays()
        # Also makes the names last that were found.
        self._fs.sync_folder(self._folder)
        base = self._base()
        state, older = self._opening_state(self._scanned[base])
        return self._replay(base, state, older, torn)

    def _open_all(self) -> None:
        """Open the segments, read those that need it, and find how far the disk was safe."""
        for name in sorted(self._names):
            if name.endswith(".segment") and _NAME.fullmatch(name):
                self._segments[int(name[:16])] = self._open(int(name[:16]))
        if not self._segments:
            return
        last = self._segments[max(self._segments)]
        if last.summary is not None:
            # A summary is written when the next segment is there for good.
            self._complain("the segment is missing", make_place(last.number + 1, 0))
            last.reopen()
        for segment in self._segments.values():
            if segment.summary is None:
                self._scan(segment)
            else:
                self._vouched = max(self._vouched, make_place(segment.number, segment.end))
        self._step_over_what_was_set_aside()
        self._vouched = max([self._vouched, *(one.synced for one in self._scanned.values())])

    def _open(self, number: int) -> Segment:
        path = segment_path(self._folder, number)
        file = self._files.existing(path)
        segment = Segment(self._fs, self._folder, number, file, start=0, end=0)
        segment.origin = self._adopted.get(number)
        if segment.summary_path.name in self._names:
            try:
                segment.read_summary()
            except (Corrupt, OSError) as error:
                self._note_summary(segment, error)
        return segment

    def _note_summary(self, segment: Segment, problem: Exception) -> None:
        """A summary is of no use."""
        path = segment.path
        logger.warning("summary of %s is of no use and is made again: %s", path, problem)

    def _scan(self, segment: Segment) -> _Scanned:
        if segment.number not in self._scanned:
            spine = self._read_spine(segment)
            hints = [one for one in self._set_aside.values() if one.place >> 32 == segment.number]
            findings = list(scan(segment.file, segment.number, spine + hints, segment.origin))
            one = self._scanned[segment.number] = _Scanned(segment, findings, spine)
            if segment.summary is not None:
                one.findings = _committed(one, self._vouched, segment.end).findings
        return self._scanned[segment.number]

    def _step_over_what_was_set_aside(self) -> None:
        """Find what lies behind records of unreadable length again, where neither a spine nor a
        summary leads past them any more: it was noted how long they are when they were set aside.
        """
        findings = [found for one in self._scanned.values() for found in one.findings]
        damages = [found for found in findings if isinstance(found, Damage)]
        if not damages:
            return
        for found in findings:
            if isinstance(found, Found):
                self._set_aside |= set_aside_by(found)
        for damage in damages:
            known = self._set_aside.get(damage.place)
            if known is not None and known.length != damage.length:
                number = split_place(damage.place)[0]
                self._scanned.pop(number, None)
                self._scan(self._segments[number])

    def _read_spine(self, segment: Segment) -> list[SpineEntry]:
        if segment.spine_path.name not in self._names:
            return []
        return read_spine(self._fs, segment.spine_path, segment.number)

    def _drop_unfinished(self) -> None:
        """Remove a last segment whose creation was interrupted: no operation was ever written to
        it.
        """
        last = max(self._segments, default=0)
        if not last or _committed(self._scanned[last], self._vouched, None).end:
            return
        before = self._segments.get(last - 1)
        if before is not None and before.summary is not None:
            self._complain("the segment cannot be read from its beginning", make_place(last, 0))
        self._discard(last)
        if before is not None:
            # It is the last again, so its end has to be found, and it will grow.
            before.reopen()
            self._scan(before)

    def _cut_tail(self) -> int:
        """Find the end of the last committed operation, remove what lies behind it, and make the
        rest last.
        """
        torn = 0
        lost_from: int | None = None
        for number in sorted(self._scanned):
            one = self._scanned[number]
            committed = _committed(one, self._vouched, self._expected_end(number))
            one.findings = committed.findings
            one.segment.end = committed.end
            if number == max(self._segments) or committed.lost:
                # A summary that outlived its segment's seal must be gone before the segment grows.
                self._unlink(one.segment.summary_path)
                if one.segment.is_dirty():
                    # Behind an end mark lies what another segment left in the file.
                    if one.segment.file.pread(len(END_MARK), committed.end) != END_MARK:
                        torn += one.segment.file.size() - committed.end
                    one.segment.file.truncate(committed.end)
            self._make_last(one.segment)
            if committed.lost:
                lost_from = number
                break
        if lost_from is None:
            return torn
        # Everything behind came after an operation that the disk lost. The newest goes first, so
        # that a crash in the middle leaves no gap.
        for number in sorted([one for one in self._segments if one > lost_from], reverse=True):
            torn += self._segments[number].file.size()
            self._discard(number)
        return torn

    def _make_last(self, segment: Segment) -> None:
        """Have on disk what was read, even if it was only in the kernel's memory."""
        number, vouched_offset = split_place(self._vouched)
        offset = vouched_offset if number == segment.number else 0
        if number <= segment.number:
            while offset < segment.end:
                chunk = segment.file.pread(min(_CHUNK_BYTES, segment.end - offset), offset)
                if not chunk:
                    break
                segment.file.pwrite([chunk], offset)
                offset += len(chunk)
        segment.file.sync()

    def _expected_end(self, number: int) -> int | None:
        """Where the next segment says that this one ends; None if there is no next one, or it
        cannot say.
        """
        following = self._segments.get(number + 1)
        if following is None:
            return None
        opening = self._opening_of(following)
        return None if opening is None else read_previous_end(opening.payload)

    def _opening_of(self, segment: Segment) -> Found | None:
        """The state that a segment opens with. Of one that has a summary nothing else is read: that
        finds frames which its records alone do not lead to.
        """
        if segment.summary is None or segment.number in self._scanned:
            return self._scan(segment).opening
        findings = islice(scan(segment.file, segment.number, [], segment.origin), 2)
        return _Scanned(segment, list(findings), []).opening

    def _base(self) -> int:
        """The newest segment whose opening state can be read; later ones are replayed on it."""
        for number in sorted(self._segments.keys() - self._adopted.keys(), reverse=True):
            # A sealed segment is only asked for its state when the ones behind it lost theirs.
            if self._scan(self._segments[number]).opening is not None or number == 1:
                return number
        path = segment_path(self._folder, max(self._segments))
        raise Corrupt("no segment has a state that can be read", path=path, offset=0)

    def _opening_state(self, one: _Scanned) -> tuple[State, list[int]]:
        if one.opening is None:
            return State(), []
        try:
            return State.from_json(one.opening.payload)
        except Corrupt as damage:
            raise damage.at(one.segment.path, 0) from damage

    def _replay(self, base: int, state: State, older: list[int], torn: int) -> Recovered:
        segments = self._segments
        replay = Replay(state, self._bucket_of)
        for number, one in sorted(self._scanned.items()):
            replay.index(one.segment, one.findings, apply=number >= base)
        expected = {*older, *(number for number in segments if number >= base)} - replay.retired
        damages = [damage for damage in replay.damages if split_place(damage.place)[0] in expected]
        damages += [
            Damage(make_place(number, 0), 0, 0, "the segment is missing")
            for number in sorted(expected - segments.keys())
        ]
        damages = [damage for damage in damages if damage.place not in state.quarantined]
        for damage in damages:
            self._complain(damage.reason, damage.place)
        last = max(segments)
        for number in segments:
            if number != last:
                segments[number].seal()
        return Recovered(
            state,
            [segments[number] for number in sorted(segments)],
            [_spine_entry(found) for found in self._scanned[last].findings],
            damages,
            sorted(segments.keys() - expected),
            torn,
        )

    def _complain(self, reason: str, place: int) -> None:
        """Raise, or go on without what is damaged, as the queue was told."""
        number, offset = split_place(place)
        path = segment_path(self._folder, number)
        if not self._tolerate_damage:
            raise Corrupt(
                f"{reason}; {advice.doctor(self._folder.parent)} tells what is lost; restore it "
                "from a backup, or open with on_corruption='continue' to go on without it",
                path=path,
                offset=offset,
            )
        logger.error("%s, offset %d: %s; going on without it", path, offset, reason)

    def _discard(self, number: int) -> None:
        self._scanned.pop(number, None)
        segment = self._segments.pop(number)
        segment.file.close()
        for path in (segment.path, segment.summary_path, segment.spine_path):
            self._unlink(path)
        self._fs.sync_folder(self._folder)

    def _drop_strays(self) -> None:
        """Remove what a segment left behind that is gone."""
        for name in sorted(self._names):
            if int(name[:16]) not in self._segments:
                self._unlink(self._folder / name)

    def _unlink(self, path: Path) -> None:
        if path.name in self._names:
            self._fs.unlink(path)
            self._names.remove(path.name)


class _Committed(NamedTuple):
    """The part of a segment that counts."""

    findings: list[Finding]
    end: int  # the offset behind it
    lost: bool  # whether something behind it was begun, and never finished


def _committed(one: _Scanned, vouched: int, expected_end: int | None) -> _Committed:
    number = one.segment.number
    kept: list[Finding] = []
    pending: list[Finding] = []
    end = 0
    epoch = 0
    for finding in one.findings:
        found = finding
        if isinstance(found, Damage):
            if expected_end is not None and split_place(found.place)[1] >= expected_end:
                break  # Nothing was ever written there, or a segment before had the file.
            if found.place >= vouched:
                return _Committed(kept, end, True)
            stop = found.place + found.length
            if not found.length:
                limit = one.segment.file.size() if expected_end is None else expected_end
                stop = min(vouched, make_place(number, limit))
                found = found._replace(length=stop - found.place)
        else:
            if found.envelope.epoch < epoch:
                # An earlier owner wrote it, and a later one has cut it off already.
                break
            epoch = found.envelope.epoch
            stop = found.envelope.place + found.envelope.total_bytes
        pending.append(found)
        if (isinstance(found, Found) and found.envelope.commit) or stop <= vouched:
            kept += pending
            pending = []
            end = split_place(stop)[1]
    if expected_end is not None and end < expected_end:
        place = make_place(number, end)
        if place >= vouched:
            return _Committed(kept, end, True)
        kept.append(Damage(place, expected_end - end, 0, "zeroes stand where records should"))
        end = expected_end
    return _Committed(kept, end, bool(pending))


def _spine_entry(found: Finding) -> SpineEntry:
    if isinstance(found, Damage):
        return SpineEntry(found.place, found.length, found.rows, 0)
    return SpineEntry(found.envelope.place, found.envelope.total_bytes, found.envelope.rows, 0)
