"""Verifies one segment: every record, and what the segment says against what its neighbours say.

Records are read one after the other and let go, so that memory holds one of them, whatever the size
of the segment; besides, 64 bytes for each frame, to hold the summary against.

Not all damage costs something. Opening reads the last segments whole; of an older one it takes the
frames by its summary, and everything else is said again by the state that opens a later segment. A
damaged envelope or cut in there is not missed, and goes when the segment is rewritten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from tidemill.batch import HEADER_BYTES, SchemaVersions, decode_body, unpack_header
from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files import advice
from tidemill.files.doctor.census import Census
from tidemill.files.doctor.state_check import differences
from tidemill.files.doctor.summary_check import disagreement
from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.format.record import (
    ENVELOPE_BYTES,
    Envelope,
    Kind,
    make_place,
    padded,
    split_place,
)
from tidemill.files.journal.scan import Damage, Found, entry_of, scan
from tidemill.files.journal.segment import Segment
from tidemill.files.journal.spine import SpineEntry
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.recovery.replay import Replay
from tidemill.files.report import Findings
from tidemill.files.state.bucket import BucketFunction
from tidemill.files.state.state import State

_TWICE = frozenset(
    {Kind.FORK, Kind.REMOVE, Kind.RETIRE, Kind.QUARANTINE, Kind.TRIM, Kind.NOTE, Kind.SKIP}
)


class Known(NamedTuple):
    """What holds for all segments."""

    versions: SchemaVersions | None  # None: the settings cannot be read
    bucket: BucketFunction | None  # None: it is the user's own, and was not given
    state: State | None  # at the end of the journal; None: it cannot be known
    census: Census | None  # who needs what; None likewise
    read_whole: frozenset[int]  # segments of which opening reads every record
    last: int  # the number of the last segment
    is_log: bool = False  # its rows have no keys, and dense numbers


@dataclass(slots=True)
class Thread:
    """What runs through the journal, from one segment to the next."""

    epoch: int = 0
    synced: int = 0
    seq: int = 0  # the last one given
    time_us: int = 0
    number: int = 0  # of the segment before
    state: State | None = None  # that the segment before leads to; None: not known


@dataclass(slots=True)
class Checked:
    """What came of one segment."""

    records: int = 0
    frames: int = 0
    items: int = 0
    damages: list[Damage] = field(default_factory=list)  # that have to be set aside
    needs_rewrite: bool = False  # damage that is not missed, and goes with the segment
    needs_summary: bool = False  # what the summary says is wrong


class SegmentCheck:
    """One pass over one segment."""

    def __init__(
        self,
        segment: Segment,
        spine: list[SpineEntry],
        known: Known,
        thread: Thread,
        findings: Findings,
    ) -> None:
        self._segment = segment
        self._folder = segment.path.parent.parent  # of the queue
        self._known = known
        self._thread = thread
        self._findings = findings
        self._entries = _by_offset(segment)
        self._spine = spine or [
            SpineEntry(entry.place, padded(ENVELOPE_BYTES + entry.length), entry.rows, 0)
            for entry in self._entries.values()
        ]
        bucket = known.bucket
        self._bucket_of: Callable[[int], int] = (lambda _: 0) if bucket is None else bucket.of
        # What is gathered must not touch the segment that others look at.
        self._twin = Segment(
            segment.fs, segment.path.parent, segment.number, segment.file, start=0, end=segment.end
        )
        self._reader = known.versions and FrameReader({}, known.versions, own_from=2**63)
        self._state: State | None = None
        self._replay: Replay | None = None
        self._opening: bytes | None = None
        self._copied: tuple[Kind, bytes] | None = None
        self._is_exact = True  # nothing is damaged, so that it is known what it leads to
        self._is_committed = True  # the last operation was
        self._is_operation_damaged = False  # the present one is
        self._noted = {split_place(entry.place)[1]: entry for entry in spine if entry.length}
        self._damaged_offsets: list[int] = []
        self.position = 0  # up to where the segment was verified
        self.checked = Checked()

    def run(self, tick: Callable[[int, int], None]) -> Checked:
        """Verify everything; `tick` is told how many records and bytes each step was."""
        segment = self._segment
        try:
            origin = segment.origin
            for found in scan(segment.file, segment.number, self._spine, origin, frames=True):
                start = self.position
                if start >= segment.end:
                    break
                if isinstance(found, Damage):
                    self._damage(found)
                else:
                    self._record(found)
                    self.checked.records += 1
                tick(int(isinstance(found, Found)), min(self.position, segment.end) - start)
            if self.position < segment.end:
                rest = segment.end - self.position
                place = make_place(segment.number, self.position)
                self._damage(Damage(place, rest, 0, "zeroes stand where records should"))
            self._finish()
        except UnknownFormat as error:
            self._findings.damage(
                "unknown-format",
                segment.path,
                f"{error}; what follows in this segment was not verified",
                "use the release that wrote it, or a newer one",
                offset=self.position,
            )
            self._is_exact = False
        thread = self._thread
        thread.number = segment.number
        thread.state = self._state if self._is_exact else None
        return self.checked

    def _record(self, found: Found) -> None:
        envelope = found.envelope
        offset = split_place(envelope.place)[1]
        self.position = offset + envelope.total_bytes
        self._check_envelope(envelope, offset)
        if envelope.kind is Kind.STATE:
            self._check_state(found.payload, offset)
        elif envelope.kind is Kind.FRAME:
            self._check_frame(found, offset)
        self._check_copy(envelope, found.payload, offset)
        self._check_spine(envelope, offset)
        self._is_committed = envelope.commit
        self._is_operation_damaged &= not envelope.commit
        if self._replay is None:
            self._replay = Replay(self._begin(), self._bucket_of)
        try:
            self._replay.index(self._twin, [found], apply=self._state is not None)
        except Corrupt as damage:
            # Behind damage it may merely refer to what was lost.
            if self._is_exact:
                self._wrong("record-wrong", offset, damage.reason)
            self._state = None

    def _begin(self) -> State:
        """The state to go on from where the segment itself does not tell."""
        is_next = self._thread.number == self._segment.number - 1
        if self._state is None and is_next and self._segment.origin is None:
            self._state = self._thread.state
        return State() if self._state is None else self._state

    def _check_envelope(self, envelope: Envelope, offset: int) -> None:
        if self._segment.origin is None:
            self._check_thread(envelope, offset)
        end = offset + ENVELOPE_BYTES + envelope.length
        padding = self._segment.file.pread(self.position - end, end)
        if padding.count(0) != len(padding):
            self._findings.warn(
                "padding",
                self._segment.path,
                "the zeroes behind a record are none; the record itself is unharmed, but the disk "
                "changes what it keeps",
                "look at the disk, and have a backup",
                offset=end,
            )

    def _check_thread(self, envelope: Envelope, offset: int) -> None:
        """Owners follow one another, and what was on disk stays there."""
        thread = self._thread
        if envelope.epoch < thread.epoch:
            self._wrong("epoch", offset, "an earlier owner wrote the record than the one before it")
        if not thread.synced <= envelope.synced <= envelope.place:
            self._wrong("synced", offset, "the record is wrong about what was on disk before it")
        thread.epoch = max(thread.epoch, envelope.epoch)
        thread.synced = max(thread.synced, min(envelope.synced, envelope.place))

    def _check_state(self, payload: bytes, offset: int) -> None:
        if self._opening is not None or self.checked.records + len(self._damaged_offsets) > 1:
            if payload != self._opening:
                self._wrong("state-copies", offset, "a state stands here that is not the first")
            return
        self._opening = payload
        if self._segment.origin is not None:
            return  # It is the state of the queue that it comes from.
        try:
            stated, _ = State.from_json(payload)
        except Corrupt as damage:
            self._wrong("state", offset, damage.reason)
            return
        thread = self._thread
        if thread.state is not None and thread.number == self._segment.number - 1:
            for words in differences(thread.state, stated):
                self._wrong("state", offset, f"the state is not what came before: {words}")
        self._state = stated

    def _check_frame(self, found: Found, offset: int) -> None:
        entry = entry_of(found, self._bucket_of)
        header, frame = found.header, found.frame
        self.checked.frames += 1
        self.checked.items += entry.rows
        if header is None or frame is None or self._is_set_aside(entry.place):
            return
        thread = self._thread
        if not header.carried:
            if header.first_seq <= thread.seq:
                self._wrong("seq", offset, f"the seq {header.first_seq} was given before")
            elif self._is_exact and self._lacks_rows(thread.seq, header.first_seq):
                rows = f"rows {thread.seq + 1} to {header.first_seq - 1}"
                self._wrong("seq", offset, f"{rows} should stand before it, and do not")
            thread.seq = max(thread.seq, entry.seq_max)
        if header.time_us < thread.time_us:
            self._wrong("time", offset, "the frame is older than the one before it")
        thread.time_us = max(thread.time_us, header.time_us)
        try:
            self._decode(entry, pa.py_buffer(frame))
            if self._bucket_of(entry.key_min) != self._bucket_of(entry.key_max):
                raise Corrupt("the frame straddles two buckets")
        except Corrupt as damage:
            total = found.envelope.total_bytes
            self._lost(Damage(entry.place, total, entry.rows, damage.reason), entry)
        state = self._known.state
        if state is not None and entry.audience and entry.audience not in state.audiences:
            self._findings.warn(
                "audience",
                self._segment.path,
                "it is no longer known which forks the frame was meant for: all of them see it",
                offset=offset,
                items=entry.rows,
            )

    def _lacks_rows(self, last: int, first: int) -> bool:
        """Whether rows of a log between these two, which follow one another, are missing."""
        state = self._known.state
        is_gap = self._known.is_log and 0 < last < first - 1
        return is_gap and (state is None or state.log.was_here(last + 1, first))

    def _check_copy(self, envelope: Envelope, payload: bytes, offset: int) -> None:
        """Records that much hangs on come twice."""
        if envelope.kind not in _TWICE:
            return
        this = envelope.kind, payload
        if self._copied == this:
            self._copied = None
            return
        if (self._copied is not None or envelope.commit) and not self._is_operation_damaged:
            self._wrong("copy", offset, f"the {envelope.kind.name} record has no equal copy")
        self._copied = None if envelope.commit else this

    def _check_spine(self, envelope: Envelope, offset: int) -> None:
        noted = self._noted.pop(offset, None)
        if noted is not None and noted[1:3] != (envelope.total_bytes, envelope.rows):
            self._noted[-1] = noted  # Told once, at the end.

    def _damage(self, damage: Damage) -> None:
        offset = split_place(damage.place)[1]
        length = damage.length or self._segment.end - offset
        damage = damage._replace(length=length)
        self.position = offset + length
        self._is_exact = False
        self._is_operation_damaged = True
        self._copied = None
        self._damaged_offsets.append(offset)
        if self._replay is not None:
            self._replay.index(self._twin, [damage], apply=self._state is not None)
        if self._is_set_aside(damage.place):
            return
        entry = self._entries.get(offset)
        if self._segment.number in self._known.read_whole:
            self._lost(damage, entry)
        elif entry is None:
            self._missed_by_nobody(
                damage, "the record is not needed, since a later state says the same"
            )
        elif self._is_whole(entry):
            self._missed_by_nobody(
                damage, "the items behind it are unharmed, and are found through the summary"
            )
        else:
            self._lost(damage._replace(rows=entry.rows), entry)

    def _is_whole(self, entry: Entry) -> bool:
        """Whether a frame can be read although its envelope cannot."""
        if not self._reader:
            return False
        try:
            at = entry.offset + ENVELOPE_BYTES
            [payload] = self._segment.file.pread_buffers([entry.length], at)
            self._decode(entry, payload)
        except Corrupt:
            return False
        return True

    def _decode(self, entry: Entry, payload: pa.Buffer) -> None:
        """Raise if the rows of a frame do not decode; where the schema is known."""
        versions = self._known.versions
        if versions is not None and self._known.is_log:
            header = unpack_header(memoryview(payload))
            if header.check != entry.check or header.carried:
                raise Corrupt("the frame is not the one that was written here")
            schema = versions.by_fingerprint(header.fingerprint)
            decode_body(header, memoryview(payload)[HEADER_BYTES:], schema)
        elif self._reader:
            self._reader.decode(entry, payload, self._segment.origin)

    def _lost(self, damage: Damage, entry: Entry | None) -> None:
        """Damage that has to be set aside."""
        self.checked.damages.append(damage)
        census = self._known.census
        offset = split_place(damage.place)[1]
        what = f"{damage.reason}; the record is of no use"
        tell = self._findings.damage
        if entry is not None and census is not None and not census.needs(entry):
            what += ", but no fork needs its items any more"
            tell = self._findings.warn
        tell(
            "record",
            self._segment.path,
            what,
            advice.RESTORE if self._known.is_log else advice.set_aside(self._folder),
            offset=offset,
            items=damage.rows,
        )

    def _missed_by_nobody(self, damage: Damage, why: str) -> None:
        self.checked.needs_rewrite = True
        offset = split_place(damage.place)[1]
        self._findings.warn(
            "record-spare",
            self._segment.path,
            f"{damage.reason}; {why}",
            # The rows of a log that are missing are told of by their numbers.
            "" if self._known.is_log else advice.rewrite(self._folder),
            offset=offset,
        )

    def _wrong(self, code: str, offset: int, what: str) -> None:
        """Checksums are right, so that the disk is not to blame."""
        self._findings.damage(code, self._segment.path, what, advice.REPORT_BUG, offset=offset)

    def _is_set_aside(self, place: int) -> bool:
        state = self._known.state
        return state is not None and place in state.quarantined

    def _finish(self) -> None:
        segment = self._segment
        if not self._is_committed and self._is_exact:
            self._wrong("commit", self.position, "the segment ends in the middle of an operation")
        if segment.number != self._known.last and segment.is_dirty():
            self._findings.note(
                "rest", segment.path, "bytes follow the end of the data; nobody reads them"
            )
        if any(offset < segment.end for offset in self._noted) and self._is_exact:
            self._findings.warn(
                "spine",
                segment.spine_path,
                "the spine does not fit its segment",
                advice.rebuild(self._folder),
            )
        summary, table = segment.summary, self._twin.table
        if summary is None or table is None:
            return
        words = disagreement(
            summary.directory,
            segment.entries,
            table.rows,
            self._damaged_offsets,
            buckets_known=self._known.bucket is not None,
        )
        if words is not None:
            self.checked.needs_summary = True
            self._findings.damage(
                "summary-wrong",
                segment.summary_path,
                f"the summary does not fit its segment: {words}; items may be out of sight",
                advice.rebuild(self._folder),
            )


def _by_offset(segment: Segment) -> dict[int, Entry]:
    """The frames of a segment by their offset, if it has a summary."""
    if segment.summary is None:
        return {}
    return {entry.offset: entry for entry in FrameList.of([(segment.number, segment.entries)])}
