"""Reads frames back: bytes to verified rows, less what a fork has consumed."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.batch import (
    HEADER_BYTES,
    Batch,
    SchemaVersions,
    decode_body,
    decode_known,
    int64_values,
    join_body,
    project,
    unpack_header,
    unpack_known,
)
from tidemill.errors import Corrupt
from tidemill.files.cut import Cut, Cuts
from tidemill.files.frame_table import Entry
from tidemill.files.origin import Origin
from tidemill.files.record import ENVELOPE_BYTES
from tidemill.files.run import Run
from tidemill.files.segment import Segment
from tidemill.files.storage import typed


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

    def read(self, entry: Entry) -> Run:
        """All rows of a frame, verified."""
        segment = self._segments[entry.segment]
        try:
            payload = segment.file.pread_buffer(entry.length, entry.offset + ENVELOPE_BYTES)
        except OSError as error:
            raise typed(error, "reading", segment.path) from error
        try:
            if entry.place >= self.own_from and segment.origin is None:
                return self._own(entry, payload)
            return self.decode(entry, payload, segment.origin)
        except Corrupt as damage:
            found = DamagedFrame(damage.reason, path=segment.path, offset=entry.offset)
            found.entry = entry
            raise found from damage

    def read_live(self, entry: Entry, cuts: Cuts) -> Run:
        """The rows of a frame that these cuts leave."""
        run = self.read(entry)
        touching = cuts.touching(entry.place, entry.keys, entry.seqs)
        if not touching:
            return run
        if all(cut.is_take and cut.arrived >= entry.seq_max for cut in touching):
            run.position = max(run.until(cut.high, cut.seq) for cut in touching)
            return run
        return run.filtered(~_covered(run, touching))

    def written(self, entry: Entry, rows: pa.RecordBatch, time_us: int) -> Run:
        """What `read` would give of a frame that was written just now, of these rows."""
        versions = self.versions
        schema = versions.body(versions.newest_fingerprint, carried=False)
        # What is pushed may say of all of its columns that they could hold nulls.
        return _uncarried(pa.RecordBatch.from_arrays(rows.columns, schema=schema), entry, time_us)

    def _own(self, entry: Entry, payload: pa.Buffer) -> Run:
        versions = self.versions
        view = memoryview(payload)
        is_carried, time_us, mark, check = unpack_known(view, entry.check)
        schema = versions.body(mark, carried=is_carried)
        body = decode_known(view[HEADER_BYTES:], check, schema)
        if is_carried:
            return Run(body, None, None, seq_max=entry.seq_max)
        return _uncarried(body, entry, time_us)

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


def _uncarried(body: pa.RecordBatch, entry: Entry, time_us: int) -> Run:
    """A frame of this handle that holds neither seqs nor times; its bounds are known."""
    return Run(
        body,
        entry.seq_min,
        time_us,
        seq_max=entry.seq_max,
        first=(entry.key_min, entry.seq_min),
        last=(entry.key_max, entry.seq_max),
    )


def _covered(run: Run, cuts: list[Cut]) -> NDArray[np.bool_]:
    """Which rows one of the cuts covers."""
    # A cut that came after all rows covers neighbours, of which only the first and the one behind
    # the last are noted: thousands of deletes in one frame are no reason to look at each row as
    # often.
    steps = np.zeros(run.rows + 1, np.int64)
    covered = np.zeros(run.rows, np.bool_)
    for cut in cuts:
        if cut.arrived >= run.seq_max:
            start = int(run.keys.searchsorted(cut.low, "left"))
            steps[start] += 1
            steps[max(run.until(cut.high, cut.seq), start)] -= 1
        else:
            covered |= cut.mask(run.keys, run.seqs)
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
