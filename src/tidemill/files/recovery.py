"""Opening a journal: from the files alone to the state they stand for.

Which segments are read whole:

    sealed, with a good summary        no     its directory is enough
    sealed, summary missing or bad     yes    and it gets a new one
    the last one                       yes    its end must be found
    not known to be synced             yes    power may have failed before its blocks were written

What is found wrong lies either before or behind the point that was known to be on disk (`vouched`: the highest `synced`
in any record or spine). Behind it, it is a torn tail, which nobody was promised: it is cut off, with all that
follows. Before it, it is damage: "abort" raises, "continue" sets the record aside.

Invariant: recovery only ever removes bytes that no operation with a commit mark in good order vouches for, so doing it
twice, or crashing in the middle of it, leads to the same state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.files.cut import unpack_cut
from tidemill.files.filesystem import FileSystem
from tidemill.files.open_files import OpenFiles
from tidemill.files.operation import unpack_fork, unpack_quarantine, unpack_remove, unpack_retire
from tidemill.files.record import Kind, make_place, split_place
from tidemill.files.scan import Damage, Finding, Found, entry_of, scan
from tidemill.files.segment import Segment, segment_path
from tidemill.files.spine import SpineEntry, unpack_entries
from tidemill.files.state import State, read_previous_end

logger = logging.getLogger(__name__)

_ZEROES = bytes(1024 * 1024)


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
        self._names = set(fs.list_folder(folder))

    def run(self) -> Recovered | None:
        """The recovered journal, or None if not even its first segment was finished."""
        numbers = sorted(int(name[:16]) for name in self._names if name.endswith(".segment"))
        segments = {number: self._open(number) for number in numbers}
        scanned = self._scan(segments)
        vouched = max([one.synced for one in scanned.values()], default=0)
        self._drop_unfinished(segments, scanned, vouched)
        if not segments:
            return None
        torn = self._cut_tail(segments, scanned, vouched)
        base = self._base(segments, scanned)
        state, older = self._opening_state(scanned[base])
        return self._replay(base, state, older, segments, scanned, torn)

    def _open(self, number: int) -> Segment:
        path = segment_path(self._folder, number)
        file = self._files.existing(path)
        segment = Segment(self._fs, self._folder, number, file, start=0, end=0)
        if segment.summary_path.name in self._names:
            try:
                segment.read_summary()
            except (Corrupt, OSError) as error:
                logger.warning("summary of %s is of no use and is made again: %s", path, error)
        return segment

    def _scan(self, segments: dict[int, Segment]) -> dict[int, _Scanned]:
        scanned: dict[int, _Scanned] = {}
        for number, segment in segments.items():
            if segment.summary is None or number == max(segments):
                self._scan_one(segment, scanned)
        return scanned

    def _scan_one(self, segment: Segment, scanned: dict[int, _Scanned]) -> None:
        if segment.number not in scanned:
            spine = self._read_spine(segment)
            findings = list(scan(segment.file, segment.number, spine))
            scanned[segment.number] = _Scanned(segment, findings, spine)

    def _read_spine(self, segment: Segment) -> list[SpineEntry]:
        if segment.spine_path.name not in self._names:
            return []
        file = self._fs.open(segment.spine_path)
        try:
            entries = unpack_entries(file.pread(file.size(), 0))
        finally:
            file.close()
        return [entry for entry in entries if split_place(entry.place)[0] == segment.number]

    def _drop_unfinished(
        self, segments: dict[int, Segment], scanned: dict[int, _Scanned], vouched: int
    ) -> None:
        """Remove a last segment whose creation was interrupted: no operation was ever written to it."""
        last = max(segments, default=0)
        if not last or _committed(scanned[last], vouched, None).end:
            return
        self._discard(segments.pop(last))
        del scanned[last]
        if segments:
            # The one before is the last again, so its end has to be found.
            self._scan_one(segments[max(segments)], scanned)

    def _cut_tail(
        self, segments: dict[int, Segment], scanned: dict[int, _Scanned], vouched: int
    ) -> int:
        """Find the end of the last committed operation, and remove what lies behind it."""
        torn = 0
        lost_from: int | None = None
        for number in sorted(scanned):
            one = scanned[number]
            committed = _committed(one, vouched, self._expected_end(number, scanned))
            one.findings = committed.findings
            one.segment.end = committed.end
            if (number == max(segments) or committed.lost) and _is_dirty(one.segment):
                torn += one.segment.file.size() - committed.end
                one.segment.file.truncate(committed.end)
            # A killed process leaves data that is written, but not on disk yet.
            one.segment.file.sync()
            if committed.lost:
                lost_from = number
                break
        if lost_from is None:
            return torn
        # Everything behind came after an operation that the disk lost. The newest goes first, so that a crash in
        # the middle leaves no gap.
        for number in sorted([one for one in scanned if one > lost_from], reverse=True):
            torn += scanned[number].segment.file.size()
            self._discard(segments.pop(number))
            del scanned[number]
        return torn

    def _expected_end(self, number: int, scanned: dict[int, _Scanned]) -> int | None:
        """Where the next segment says that this one ends; None if there is no next one, or it cannot say."""
        following = scanned.get(number + 1)
        if following is None or following.opening is None:
            return None
        return read_previous_end(following.opening.payload)

    def _base(self, segments: dict[int, Segment], scanned: dict[int, _Scanned]) -> int:
        """The newest segment whose opening state can be read; later ones are replayed on top of it."""
        for number in sorted(segments, reverse=True):
            # A sealed segment is only asked for its state when the ones behind it lost theirs.
            self._scan_one(segments[number], scanned)
            if scanned[number].opening is not None or number == 1:
                return number
        path = segment_path(self._folder, max(segments))
        raise Corrupt("no segment has a state that can be read", path=path, offset=0)

    def _opening_state(self, one: _Scanned) -> tuple[State, list[int]]:
        if one.opening is None:
            return State(), []
        try:
            return State.from_json(one.opening.payload)
        except Corrupt as damage:
            raise damage.at(one.segment.path, 0) from damage

    def _replay(
        self,
        base: int,
        state: State,
        older: list[int],
        segments: dict[int, Segment],
        scanned: dict[int, _Scanned],
        torn: int,
    ) -> Recovered:
        replayer = _Replayer(state, self._bucket_of)
        for number in sorted(scanned):
            replayer.index(scanned[number], apply=number >= base)
        self._check_damages(replayer.damages)
        expected = {*older, *(number for number in segments if number >= base)} - replayer.retired
        for number in sorted(expected - segments.keys()):
            raise Corrupt(
                "the segment is missing; restore it from a backup",
                path=segment_path(self._folder, number),
                offset=0,
            )
        last = max(segments)
        for number in segments:
            if number != last:
                segments[number].seal()
        return Recovered(
            state,
            [segments[number] for number in sorted(segments)],
            [
                SpineEntry(found.envelope.place, found.envelope.total_bytes, found.envelope.rows, 0)
                for found in scanned[last].findings
                if isinstance(found, Found)
            ],
            replayer.damages,
            sorted(segments.keys() - expected),
            torn,
        )

    def _check_damages(self, damages: list[Damage]) -> None:
        if damages and not self._tolerate_damage:
            number, offset = split_place(damages[0].place)
            raise Corrupt(
                f"{damages[0].reason}; open with on_corruption='continue' to set the record aside",
                path=segment_path(self._folder, number),
                offset=offset,
            )

    def _discard(self, segment: Segment) -> None:
        segment.file.close()
        for path in (segment.path, segment.summary_path, segment.spine_path):
            if path.name in self._names:
                self._fs.unlink(path)
        self._fs.sync_folder(self._folder)


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
    for found in one.findings:
        if isinstance(found, Damage):
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


def _is_dirty(segment: Segment) -> bool:
    """Whether anything but zeroes follows the end of data."""
    offset = segment.end
    while chunk := segment.file.pread(len(_ZEROES), offset):
        if chunk != _ZEROES[: len(chunk)]:
            return True
        offset += len(chunk)
    return False


class _Replayer:
    """Applies what was read, in order."""

    def __init__(self, state: State, bucket_of: Callable[[int], int]) -> None:
        self._state = state
        self._bucket_of = bucket_of
        self.retired: set[int] = set()
        self._found: list[Damage] = []

    @property
    def damages(self) -> list[Damage]:
        """The damage that has not been set aside yet."""
        return [damage for damage in self._found if damage.place not in self._state.quarantined]

    def index(self, one: _Scanned, *, apply: bool) -> None:
        segment = one.segment
        rebuild = segment.table is not None
        epoch = 0
        for found in one.findings:
            if isinstance(found, Damage):
                self._found.append(found)
                if apply:
                    # The items are gone, but their numbers are used up. Recounting corrects the forks later.
                    self._state.forgiving = True
                    self._state.push(self._state.next_seq, found.rows)
                continue
            epoch = max(epoch, found.envelope.epoch)
            try:
                if found.envelope.kind is Kind.FRAME and rebuild and segment.table is not None:
                    segment.table.append(entry_of(found, self._bucket_of))
                if found.envelope.kind is Kind.STATE:
                    segment.start = (
                        split_place(found.envelope.place)[1] + found.envelope.total_bytes
                    )
                elif apply:
                    self._apply(found)
            except Corrupt as damage:
                raise damage.at(segment.path, split_place(found.envelope.place)[1]) from damage
        self._state.epoch = max(self._state.epoch, epoch)

    def _apply(self, found: Found) -> None:
        envelope, header, payload = found.envelope, found.header, found.payload
        if header is not None:
            if not header.carried:
                self._state.push(header.first_seq, header.rows)
            self._state.time_us = max(self._state.time_us, header.time_us)
        elif envelope.kind is Kind.CUT:
            self._state.cut(*unpack_cut(payload, envelope.place))
        elif envelope.kind is Kind.FORK:
            self._state.fork(*unpack_fork(payload), envelope.place)
        elif envelope.kind is Kind.REMOVE:
            self._state.remove(unpack_remove(payload))
        elif envelope.kind is Kind.RETIRE:
            numbers, audiences, live, dropped = unpack_retire(payload)
            self.retired.update(numbers)
            self._state.retire(audiences, live, dropped)
        elif envelope.kind is Kind.QUARANTINE:
            self._state.quarantine(*unpack_quarantine(payload))
