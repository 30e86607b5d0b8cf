"""Stores rows as segments: written, read back and compared, under the epoch of an archiver.

Any process may do it for an archiver, and several at once: what is stored has a name of its own,
and counts for nobody until the archiver has put it into the manifest. If that never happens, it is
an orphan, and swept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from tidemill.batch import LogBatch, fingerprint
from tidemill.errors import Corrupt, Fenced, StorageFailed, Unavailable
from tidemill.limits import (
    ARCHIVE_SEGMENT_BYTES,
    ARCHIVE_SEGMENT_ROWS,
    COMPACTED_SEGMENTS,
    MANIFEST_SEGMENTS,
    MIB,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
)
from tidemill.log.archive import parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import Manifest, Segment, new_segment_name
from tidemill.log.archive.objects import Absent, Present
from tidemill.log.contract import LogStore

READ_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How rows are divided."""

    segment_bytes: int = ARCHIVE_SEGMENT_BYTES
    segment_rows: int = ARCHIVE_SEGMENT_ROWS
    group_bytes: int = ROW_GROUP_BYTES
    group_rows: int = ROW_GROUP_ROWS
    manifest_segments: int = MANIFEST_SEGMENTS
    compacted_segments: int = COMPACTED_SEGMENTS


class SegmentWriter:
    """Stores rows of a log in its archive, for the archiver with this epoch."""

    def __init__(self, archive: Archive, epoch: int, sizes: Sizes) -> None:
        self._archive = archive
        self.epoch = epoch
        self._sizes = sizes

    def current(self, manifest: Manifest) -> Manifest:
        """The manifest, if nobody has taken over."""
        if manifest.epoch != self.epoch:
            raise Fenced(
                f"another archiver took over {self._archive.place} (its epoch is {manifest.epoch}, "
                f"this one's {self.epoch}); nothing of this one is added any more"
            )
        return manifest

    def store(self, log: LogStore, start: int, end: int) -> Iterator[Segment]:
        """Rows of a log as segments, one after the other; ends early where the log does."""
        while start < end and (batches := self._gather(log, start, end)):
            segment = self.put(batches)
            yield segment
            start = segment.next

    def put(self, batches: list[LogBatch]) -> Segment:
        """Store rows of one schema version as a segment, and read it back."""
        sizes = self._sizes
        data = parquet.encode(batches, group_rows=sizes.group_rows, group_bytes=sizes.group_bytes)
        first, last = batches[0], batches[-1]
        footer_bytes = parquet.footer_bytes(data)
        segment = Segment(
            file=new_segment_name(first.first_seq, self.epoch),
            first=first.first_seq,
            rows=last.next_seq - first.first_seq,
            bytes=data.size,
            footer_bytes=footer_bytes,
            time_min=_time_us(first, 0),
            time_max=_time_us(last, len(last) - 1),
            digest=xxh3_128_hexdigest(data),
            footer_digest=xxh3_64_hexdigest(data[data.size - footer_bytes :]),
            schema=f"{fingerprint(first.schema):016x}",
        )
        self.put_new(segment.file, data)
        del data
        self._verify(segment, batches)
        return segment

    def put_new(self, name: str, data: pa.Buffer) -> None:
        """Put an object with a name that is ours alone."""
        try:
            self._archive.objects.put_new(name, data)
        except Present:
            pass  # A try whose answer was lost has put it.
        except StorageFailed:
            self.current(self._archive.look())  # Whoever took over has swept what was half written.
            raise

    def _gather(self, log: LogStore, start: int, end: int) -> list[LogBatch]:
        """The rows of the next segment, all of one schema version."""
        found: list[LogBatch] = []
        size = 0
        at = start
        rows_end = min(end, start + self._sizes.segment_rows)
        while at < rows_end and size < self._sizes.segment_bytes:
            try:
                more = log.read(at, rows_max=rows_end - at, bytes_max=READ_BYTES)
            except Corrupt:
                if not found:
                    self.current(self._archive.look())  # Whoever took over has released them.
                    raise
                break  # What lies in front of it is archived; then it is met again.
            for batch in more:
                if found and not batch.schema.equals(found[0].schema):
                    return found
                found.append(batch)
                size += batch.payload.nbytes
                at = batch.next_seq
            if not more:
                break
        return found

    def _verify(self, segment: Segment, batches: list[LogBatch]) -> None:
        """See that the store gives back what the log has."""
        place = f"{segment.file} of the archive {self._archive.place}"
        try:
            data = self._archive.objects.get(segment.file).data
        except Absent as error:
            self.current(self._archive.look())  # Whoever took over has swept it.
            raise Unavailable(
                f"{place} cannot be read back just after it was written; nothing is lost: try again"
            ) from error
        if xxh3_128_hexdigest(data) != segment.digest:
            raise Corrupt(f"{place} is not what was written there; its rows are kept in the log")
        footer = parquet.read_footer(data)
        expected = pa.Table.from_batches([parquet.with_time(batch) for batch in batches])
        payload = batches[0].schema
        at = 0
        for group in parquet.groups(footer):
            piece = data[group.start : group.end]
            copy = parquet.with_time(
                parquet.decode(footer, group, piece, payload, segment.first + group.at)
            )
            source = expected.slice(group.at, group.rows).combine_chunks()
            for mine, theirs in zip(source.itercolumns(), copy.columns, strict=True):
                if not parquet.are_same(parquet.whole(mine), theirs):
                    raise Corrupt(
                        f"{place} holds other rows than the log from row {segment.first + group.at}"
                        " on; they are kept in the log"
                    )
            at += group.rows
        if at != segment.rows:
            raise Corrupt(f"{place} holds {at} rows, not {segment.rows}; they are kept in the log")


def _time_us(batch: LogBatch, at: int) -> int:
    return int(batch.slice(at, 1).times.cast("int64")[0].as_py())
