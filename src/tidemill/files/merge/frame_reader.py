"""Reads frames back: bytes to verified rows, less what a fork has consumed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.batch import (
    HEADER_BYTES,
    TIME_FIELD,
    Batch,
    PlainForm,
    SchemaVersions,
    check_known,
    decode_body,
    decode_known,
    int64_array,
    int64_values,
    join_body,
    project,
    read_body,
    unpack_header,
)
from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import divide
from tidemill.files.disk.storage import typed
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import ENVELOPE_BYTES, make_place
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.run import Run
from tidemill.files.state.cut import Cut, Cuts
from tidemill.limits import INT64_MAX, SMALL_FRAME_BYTES

_NEIGHBOURS_MAX = 256  # frames read in one call
_BETWEEN_BYTES_MAX = 4096  # that are read for nothing, rather than asking the system again


class DamagedFrame(Corrupt):
    """A frame that the index knows and the disk no longer has; carries its entry."""

    entry: Entry


class FrameReader:
    """Reads frames of the journal.

    Frames from `own_from` on were written through this handle: once their checksums are right, they
    are what was encoded here. Older ones may come from anywhere and are validated through and
    through.
    """

    def __init__(
        self, segments: dict[int, Segment], versions: SchemaVersions, *, own_from: int
    ) -> None:
        self._segments = segments
        self.own_from = own_from
        self.versions = versions
        self._plain = PlainForm(versions.body(versions.newest_fingerprint, carried=False))

    def read(self, entry: Entry) -> Run:
        """All rows of a frame, verified."""
        return self.read_all([entry])[0]

    def read_all(self, entries: Sequence[Entry]) -> list[Run]:
        """All rows of several frames, verified; those that lie near each other are read at once."""
        runs: list[Run] = []
        while len(runs) < len(entries):
            rest = entries[len(runs) :] if runs else entries
            runs += self._read_neighbours(rest, _lengths_of_neighbours(rest))
        return runs

    def read_ones(self, entries: Sequence[Entry]) -> Run | None:
        """The rows of frames with one small item of bytes each, as a run in the order given; None
        if they have to be read one by one.
        """
        versions = self.versions
        # Others had better not be copied, and kept by whoever keeps one of them.
        are_small = all(one.rows == 1 and one.length <= SMALL_FRAME_BYTES for one in entries)
        raw = self._read_raw(entries) if self._plain.is_used and are_small else None
        if raw is None:
            return None
        data, starts = raw
        bodies: list[tuple[int, int]] = []
        times: list[int] = []
        for entry, start in zip(entries, starts, strict=True):
            end = start + entry.length
            try:
                is_carried, time_us, mark = check_known(data, start, end, entry.check)
            except Corrupt as damage:
                raise _damaged(self._segments[entry.segment], entry, damage) from damage
            if is_carried or mark != versions.newest_fingerprint:
                return None
            bodies.append((start + HEADER_BYTES, end))
            times.append(time_us)
        found = self._plain.decode_ones(data, bodies)
        if found is None:
            return None
        keys, values = found
        seqs = np.array([entry.seq_min for entry in entries], np.int64)
        schema = versions.body(versions.newest_fingerprint, carried=True)
        numbers = [int64_array(keys), int64_array(seqs)]
        numbers.append(int64_array(np.array(times), TIME_FIELD.type))
        body = pa.RecordBatch.from_arrays([*numbers, values], schema=schema)
        return Run(body, None, None, int(seqs.max()), keys, seqs)

    def _read_raw(self, entries: Sequence[Entry]) -> tuple[bytes, list[int]] | None:
        """(the bytes of these frames and of what lies between neighbours, where each begins); None
        if one was not written through this handle, or is cut off.
        """
        parts: list[bytes] = []
        starts: list[int] = []
        at = 0
        while len(starts) < len(entries):
            rest = entries[len(starts) :] if starts else entries
            first, lengths = rest[0], _lengths_of_neighbours(rest)
            segment = self._segments[first.segment]
            if segment.origin is not None or first.place < self.own_from:
                return None
            try:
                parts.append(segment.file.pread(sum(lengths), first.offset + ENVELOPE_BYTES))
            except OSError as error:
                raise typed(error, "reading", segment.path) from error
            for length in lengths:
                starts.append(at)
                at += length
            if len(parts[-1]) < sum(lengths):
                return None
        return b"".join(parts), starts

    def read_live(self, entry: Entry, cuts: Cuts) -> Run:
        """The rows of a frame that these cuts leave."""
        return _live(entry, self.read(entry), cuts)

    def read_all_live(self, entries: Sequence[Entry], cuts: Cuts) -> list[Run]:
        """The same of several frames."""
        runs = self.read_all(entries)
        reach = _reach(entries, cuts)
        for at, entry in enumerate(entries):
            if entry.key_min <= reach:
                runs[at] = _live(entry, runs[at], cuts)
        return runs

    def read_ones_live(self, entries: Sequence[Entry], cuts: Cuts) -> Run | None:
        """The same of frames with one small item of bytes each."""
        reach = _reach(entries, cuts)
        is_touched = any(entry.key_min <= reach for entry in entries)
        return None if is_touched else self.read_ones(entries)

    def _read_neighbours(self, entries: Sequence[Entry], lengths: list[int]) -> list[Run]:
        """All rows of the first frames, as many as there are lengths: they lie next to each other,
        each with what is between it and the next.
        """
        number, start = entries[0].segment, entries[0].offset
        segment = self._segments[number]
        try:
            payloads = segment.file.pread_buffers(lengths, start + ENVELOPE_BYTES)
        except OSError as error:
            raise typed(error, "reading", segment.path) from error
        origin = segment.origin
        own_from = self.own_from - make_place(number, 0) if origin is None else INT64_MAX
        runs: list[Run] = []
        for entry, payload in zip(entries, payloads, strict=False):
            try:
                if entry.offset >= own_from:
                    runs.append(self._own(entry, payload))
                else:
                    runs.append(self.decode(entry, divide(payload, [entry.length])[0], origin))
            except Corrupt as damage:
                raise _damaged(segment, entry, damage) from damage
        return runs

    def written(self, entry: Entry, body: pa.Buffer | bytes, time_us: int) -> Run:
        """What `read` would give of a frame that was pushed and written just now."""
        versions = self.versions
        schema = versions.body(versions.newest_fingerprint, carried=False)
        return _pushed(entry, read_body(body, schema), time_us)

    def _own(self, entry: Entry, payload: pa.Buffer) -> Run:
        body, is_carried, time_us = decode_known(
            payload, entry.length, entry.check, self.versions.body
        )
        if is_carried:
            return Run(body, None, None, entry.seq_max)
        return _pushed(entry, body, time_us)

    def decode(self, entry: Entry, payload: pa.Buffer, origin: Origin | None = None) -> Run:
        """The rows of a frame of any origin, validated through and through."""
        versions = self.versions
        view = memoryview(payload)
        header = unpack_header(view)
        if header.check != entry.check:
            raise Corrupt("the frame is not the one that was written here")
        schema = versions.body(header.fingerprint, carried=header.carried)
        body = decode_body(header, view[HEADER_BYTES:], schema)
        if header.fingerprint != versions.newest_fingerprint:
            body = project(body, versions.body(versions.newest_fingerprint, carried=header.carried))
        if origin is not None:
            header = origin.header(header)
            body = _renumbered(body, origin) if header.carried else body
        if header.carried:
            run = Run(body, None, None, seq_max=entry.seq_max)
        else:
            run = Run(body, header.first_seq, header.time_us, seq_max=entry.seq_max)
        _check_order(run, entry)
        return run


def _pushed(entry: Entry, body: pa.RecordBatch, time_us: int) -> Run:
    """The rows of a frame as it was pushed."""
    _, _, key_min, key_max, seq_min, seq_max, *_ = entry
    first, last = (key_min, seq_min), (key_max, seq_max)
    return Run(body, seq_min, time_us, seq_max, None, None, first, last)


def _damaged(segment: Segment, entry: Entry, damage: Corrupt) -> DamagedFrame:
    found = DamagedFrame(damage.reason, path=segment.path, offset=entry.offset)
    found.entry = entry
    return found


def _lengths_of_neighbours(entries: Sequence[Entry]) -> list[int]:
    """How far it is from each of the first frames to the next one, as long as they lie in order
    with little in between; of the last of these its own length.
    """
    lengths: list[int] = []
    entry = entries[0]
    for after in islice(entries, 1, _NEIGHBOURS_MAX):
        length = after.offset - entry.offset
        is_next = entry.length < length < entry.length + _BETWEEN_BYTES_MAX
        if not is_next or after.segment != entry.segment:
            break
        lengths.append(length)
        entry = after
    lengths.append(entry.length)
    return lengths


def _reach(entries: Sequence[Entry], cuts: Cuts) -> int:
    """A key above which these frames hold no row that a cut covers."""
    return cuts.reach(min([entry.seq_min for entry in entries], default=0))[0]


def _live(entry: Entry, run: Run, cuts: Cuts) -> Run:
    """The rows of a frame that these cuts leave."""
    takes = cuts.takes_touching(entry.place, entry.keys, entry.seqs)
    others = cuts.others_touching(entry.place, entry.keys, entry.seqs)
    if not others.shape[1]:
        if not takes:
            return run
        if all(take.arrived >= entry.seq_max for take in takes):
            run.position = max(run.until(take.high, take.seq) for take in takes)
            return run
    return run.filtered(~_covered(run, takes, others))


def _covered(run: Run, takes: list[Cut], others: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which rows one of the cuts covers."""
    covered = np.zeros(run.rows, np.bool_)
    for take in takes:
        covered |= take.mask(run.keys, run.seqs)
        if take.arrived >= run.seq_max:
            break  # Those behind it reach less far.
    # A delete that came after all rows covers neighbours, of which only the first and the one
    # behind the last are noted: thousands of deletes in one frame are no reason to look at each row
    # as often.
    _, arrived, lows, highs, seqs = others
    is_simple = (arrived >= run.seq_max) & (seqs >= run.seq_max)
    for cut in others[:, ~is_simple].T.tolist():
        covered |= Cut._make(cut).mask(run.keys, run.seqs)
    starts = run.keys.searchsorted(lows[is_simple], "left")
    stops = run.keys.searchsorted(highs[is_simple], "right")
    steps = np.zeros(run.rows + 1, np.int64)
    np.add.at(steps, starts, 1)
    np.add.at(steps, np.maximum(starts, stops), -1)
    return covered | (steps[:-1].cumsum() > 0)


def _renumbered(body: pa.RecordBatch, origin: Origin) -> pa.RecordBatch:
    """The body of a carried frame with the seqs and times that its rows have here."""
    batch = Batch(body)
    seqs = int64_values(batch.seqs) + origin.shift
    times = np.full(len(batch), origin.time_us, np.int64)
    return join_body(batch.keys, batch.payload, seqs=seqs, times=times)


def _check_order(run: Run, entry: Entry) -> None:
    """A frame of any origin must hold what the index and every merge rely on."""
    keys = run.keys
    if keys[0] != entry.key_min or keys[-1] != entry.key_max:
        raise Corrupt("the keys of the frame are not within the bounds of its header")
    if not (keys[1:] >= keys[:-1]).all():
        raise Corrupt("the rows of the frame are not sorted by key")
    if run.first_seq is not None:
        return
    seqs = run.seqs
    if seqs.min() != entry.seq_min or seqs.max() != entry.seq_max:
        raise Corrupt("the seqs of the frame are not within the bounds of its header")
    if np.any((keys[1:] == keys[:-1]) & (seqs[1:] <= seqs[:-1])):
        raise Corrupt("equal keys of the frame are not sorted by seq")
