"""Reads frames back: bytes to verified rows, less what a fork has consumed."""

from __future__ import annotations

from tidemill.batch import HEADER_BYTES, SchemaVersions, decode_body, project, unpack_header
from tidemill.errors import Corrupt
from tidemill.files.cut import Cuts
from tidemill.files.frame_table import Entry
from tidemill.files.record import ENVELOPE_BYTES
from tidemill.files.run import Run
from tidemill.files.segment import Segment
from tidemill.files.storage import storage_errors


class DamagedFrame(Corrupt):
    """A frame that the index knows and the disk no longer has; carries its entry."""

    entry: Entry


class FrameReader:
    """Reads frames of the journal."""

    def __init__(self, segments: dict[int, Segment], versions: SchemaVersions) -> None:
        self._segments = segments
        self.versions = versions

    def read(self, entry: Entry) -> Run:
        """All rows of a frame, verified."""
        segment = self._segments[entry.segment]
        with storage_errors("reading", segment.path):
            payload = segment.file.pread(entry.length, entry.offset + ENVELOPE_BYTES)
        try:
            header = unpack_header(payload)
            if header.check != entry.check:
                raise Corrupt("the frame is not the one that was written here")
            schema = self.versions.body(header.fingerprint, carried=header.carried)
            body = decode_body(header, memoryview(payload)[HEADER_BYTES:], schema)
        except Corrupt as damage:
            found = DamagedFrame(damage.reason, path=segment.path, offset=entry.offset)
            found.entry = entry
            raise found from damage
        if header.fingerprint != self.versions.newest_fingerprint:
            newest = self.versions.body(self.versions.newest_fingerprint, carried=header.carried)
            body = project(body, newest)
        if header.carried:
            return Run(body, None, None, seq_max=entry.seq_max)
        return Run(body, header.first_seq, header.time_us, seq_max=entry.seq_max)

    def read_live(self, entry: Entry, cuts: Cuts) -> Run:
        """The rows of a frame that these cuts leave."""
        run = self.read(entry)
        touching = cuts.touching(entry.place, entry.keys, entry.seqs)
        if not touching:
            return run
        if all(cut.is_take and cut.arrived >= entry.seq_max for cut in touching):
            run.position = max(run.until(cut.high, cut.seq) for cut in touching)
            return run
        covered = touching[0].mask(run.keys, run.seqs)
        for cut in touching[1:]:
            covered |= cut.mask(run.keys, run.seqs)
        return run.filtered(~covered)
