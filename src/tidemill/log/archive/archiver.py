"""Moves rows from a log to its archive.

    hot rows ──gather──▶ Parquet ──put──▶ segment ──read back, compare──▶ manifest ──▶ release
                                             │                               │            │
    a crash here leaves:   nothing        an orphan                   rows that are in both places

Nothing is released before the manifest that names its copy is in place, and no segment gets into a
manifest before it was read back from the store and found to hold the same rows. Orphans are swept
by the next archiver; rows that are in both places are released by the next pass.

Two archivers cannot harm each other. Each takes the next epoch, by a change of the manifest, and
the older one raises `Fenced` when it comes to change the manifest; what it has put by then is not
named by any manifest and never will be. So whatever has an older epoch and no place in the
manifest can be removed at once, without asking a clock.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from xxhash import xxh3_64_hexdigest, xxh3_128_hexdigest

from tidemill.batch import LogBatch, SchemaVersions, fingerprint
from tidemill.errors import (
    Corrupt,
    Fenced,
    InvalidInput,
    MissingRows,
    NotAnArchive,
    Trimmed,
    Unavailable,
)
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
from tidemill.log.archive.archived import Archived
from tidemill.log.archive.dropping import drop_below
from tidemill.log.archive.manifest import (
    PAGES,
    SEGMENTS,
    Manifest,
    Segment,
    encode_page,
    object_name,
)
from tidemill.log.archive.notes import ARCHIVE_NOTE, LOG_NOTE
from tidemill.log.archive.objects import Absent, Present
from tidemill.log.archive.pending import published_in, settle
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.sweeping import find_unnamed
from tidemill.log.contract import LogStore

_READ_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """How rows are divided."""

    segment_bytes: int = ARCHIVE_SEGMENT_BYTES
    segment_rows: int = ARCHIVE_SEGMENT_ROWS
    group_bytes: int = ROW_GROUP_BYTES
    group_rows: int = ROW_GROUP_ROWS
    manifest_segments: int = MANIFEST_SEGMENTS
    compacted_segments: int = COMPACTED_SEGMENTS


class Archiver:
    """The right to archive a log, until another takes it. `log` is where its rows are hot."""

    def __init__(self, log: LogStore, archive: Archive, sizes: Sizes | None = None) -> None:
        self._log = log
        self._archive = archive
        self._sizes = Sizes() if sizes is None else sizes
        mine = _identity(log)
        empty = Manifest(
            log=mine, first=log.ends().first, next=log.ends().first, versions=log.versions
        )
        _check_owner(archive.create(empty), mine, archive)
        _note_archive(log, archive)
        archive.published = published_in(log)
        self.epoch = archive.swap(lambda old: replace(old, epoch=old.epoch + 1)).epoch
        settle(log, archive)
        self.swept = self.sweep()

    def is_at(self, url: str | os.PathLike[str] | None) -> bool:
        """Whether it archives to there; None stands for where the log was archived before."""
        return url is None or open_objects(url).url == self._archive.objects.url

    def run(self, end: int, on_progress: Callable[[Archived], None] = lambda _: None) -> Archived:
        """Archive all rows before `end` that are not yet, and release them.

        Raises `Fenced` if another archiver has taken over. Whatever it raises, nothing is lost:
        another pass goes on where this one ended.
        """
        log, archive = self._log, self._archive
        while True:
            manifest = self._current(archive.look())
            first, next_seq = log.ends()
            if manifest.next > next_seq:
                raise Corrupt(
                    f"{archive.place} holds rows up to {manifest.next - 1}, and {log.place} ends "
                    f"at {next_seq - 1}: it is not the log that was archived, but an older copy"
                )
            if manifest.first < first:
                manifest = drop_below(archive, first)
            try:
                done = self._run(manifest, end, on_progress)
            except Trimmed:
                continue  # Somebody gave rows up that were to be archived.
            while self._compact():
                pass
            return done

    def sweep(self, *, everywhere: bool = False) -> int:
        """Remove what archivers before this one left behind; returns how many objects that were.

        Of a large archive it looks at the newest segments only, where a crash leaves its own,
        unless it is to look everywhere.
        """
        manifest = self._current(self._archive.look())
        found = find_unnamed(self._archive, manifest, everywhere=everywhere)
        self._archive.objects.delete(found.orphans)
        return len(found.orphans)

    def _run(
        self, manifest: Manifest, end: int, on_progress: Callable[[Archived], None]
    ) -> Archived:
        done = Archived(manifest.next, manifest.next, 0, 0)
        # What an earlier pass archived, and did not come to release.
        self._log.release(manifest.next)
        while done.next < end:
            if len(manifest.segments) >= 2 * self._sizes.manifest_segments:
                self._fold(manifest)
            batches = self._gather(done.next, end)
            if not batches:
                break
            segment = self._put(batches)
            manifest = self._archive.swap(self._adding(segment))
            self._log.release(manifest.next)
            done = Archived(done.first, segment.next, done.segments + 1, done.bytes + segment.bytes)
            on_progress(done)
        return done

    def _gather(self, start: int, end: int) -> list[LogBatch]:
        """The rows of the next segment, all of one schema version."""
        found: list[LogBatch] = []
        size = 0
        at = start
        rows_end = min(end, start + self._sizes.segment_rows)
        while at < rows_end and size < self._sizes.segment_bytes:
            try:
                more = self._log.read(at, rows_max=rows_end - at, bytes_max=_READ_BYTES)
            except Corrupt:
                if not found:
                    self._current(self._archive.look())  # Whoever took over has released them.
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

    def _put(self, batches: list[LogBatch]) -> Segment:
        """Store rows as a segment, and read it back."""
        sizes = self._sizes
        data = parquet.encode(batches, group_rows=sizes.group_rows, group_bytes=sizes.group_bytes)
        first, last = batches[0], batches[-1]
        footer_bytes = parquet.footer_bytes(data)
        segment = Segment(
            file=self._name(SEGMENTS, first.first_seq, "parquet"),
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
        self._put_new(segment.file, data)
        del data
        self._verify(segment, batches)
        return segment

    def _verify(self, segment: Segment, batches: list[LogBatch]) -> None:
        """See that the store gives back what the log has."""
        place = f"{segment.file} of the archive {self._archive.place}"
        try:
            data = self._archive.objects.get(segment.file).data
        except Absent as error:
            self._current(self._archive.look())  # Whoever took over has swept it.
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

    def _adding(self, segment: Segment) -> Callable[[Manifest], Manifest]:
        versions: SchemaVersions = self._log.versions

        def change(manifest: Manifest) -> Manifest:
            self._current(manifest)
            if manifest.segments and manifest.segments[-1].file == segment.file:
                return manifest  # By a try whose answer was lost.
            if manifest.next != segment.first:
                # Rows up to there were given up meanwhile, by force.
                raise Trimmed(
                    f"rows up to {manifest.next - 1} were trimmed while they were archived",
                    first=manifest.next,
                )
            return manifest.added(segment, versions)

        return change

    def _fold(self, manifest: Manifest) -> None:
        """Move the older half of the segments that stand in the manifest to a page."""
        older = manifest.segments[: self._sizes.manifest_segments]
        page, data = encode_page(older, self._name(PAGES, older[0].first, "json"))
        self._put_new(page.file, data)

        def change(old: Manifest) -> Manifest:
            self._current(old)
            if old.segments[: len(older)] != older:
                return old  # It was done already, or some are gone.
            return replace(old, pages=(*old.pages, page), segments=old.segments[len(older) :])

        self._archive.swap(change)

    def _compact(self) -> bool:
        """Make one segment of small ones that lie side by side; False if there are too few."""
        manifest = self._current(self._archive.look())
        small = small_segments(manifest.segments, self._sizes)
        if not small:
            return False
        batches: list[LogBatch] = []
        at, end = small[0].first, small[-1].next
        try:
            while at < end:
                batches += self._archive.read(
                    at, rows_max=end - at, bytes_max=_READ_BYTES, versions=manifest.versions
                )
                at = batches[-1].next_seq
        except MissingRows:
            if small[0] in self._archive.look().segments:
                raise
            return True  # They were trimmed meanwhile; look again what there is.
        merged = self._put(batches)

        def change(old: Manifest) -> Manifest:
            self._current(old)
            if small[0] not in old.segments:
                return old  # By a try whose answer was lost, or rows were trimmed.
            begin = old.segments.index(small[0])
            behind = begin + len(small)
            segments = (*old.segments[:begin], merged, *old.segments[behind:])
            gone = (*old.gone, *(one.file for one in small))
            return replace(old, segments=segments, gone=gone)

        gone = self._archive.swap(change).gone
        # Should it fail here, the next change of the manifest does it.
        self._archive.objects.delete(gone)
        return True

    def _put_new(self, name: str, data: pa.Buffer) -> None:
        try:
            self._archive.objects.put_new(name, data)
        except Present:
            pass  # The name is ours alone: a try whose answer was lost has put it.

    def _current(self, manifest: Manifest) -> Manifest:
        if manifest.epoch != self.epoch:
            raise Fenced(
                f"another archiver took over {self._archive.place} (its epoch is {manifest.epoch}, "
                f"this one's {self.epoch}); nothing of this one is added any more"
            )
        return manifest

    def _name(self, folder: str, first: int, ending: str) -> str:
        return object_name(folder, first, self.epoch, secrets.token_hex(8), ending)


def small_segments(segments: Sequence[Segment], sizes: Sizes) -> list[Segment]:
    """The first segments side by side that are worth making one of; empty if there are none.

    What they take in memory is not known before they are read. Compressed they take less; so they
    are to be small enough together for the rows to stay within the bounds of a segment, nearly
    always.
    """
    found: list[Segment] = []
    rows = size = 0
    for segment in segments:
        is_small = segment.bytes < sizes.segment_bytes // 64 and segment.rows < sizes.segment_rows
        if (
            is_small
            and rows + segment.rows <= sizes.segment_rows
            and (size + segment.bytes <= sizes.segment_bytes // 8)
        ):
            found.append(segment)
            rows, size = rows + segment.rows, size + segment.bytes
            if len(found) == sizes.compacted_segments:
                return found
        else:
            found, rows, size = [], 0, 0
    return []


def _identity(log: LogStore) -> str:
    """By what an archive knows the log, which is made up once and kept in it."""
    while (found := log.notes().get(LOG_NOTE)) is None:
        log.set_note(LOG_NOTE, secrets.token_hex(16), expected=None)
    return found


def _check_owner(manifest: Manifest, mine: str, archive: Archive) -> None:
    if manifest.log != mine:
        raise NotAnArchive(
            f"{archive.place} is the archive of another log: give each log a place of its own"
        )


def _note_archive(log: LogStore, archive: Archive) -> None:
    """Write down in the log where its archive is, before anything is released."""
    url = archive.objects.url
    noted = log.notes().get(ARCHIVE_NOTE)
    if noted is None and not log.set_note(ARCHIVE_NOTE, url, expected=None):
        noted = log.notes()[ARCHIVE_NOTE]
    if noted is not None and noted != url:
        raise InvalidInput(
            f"the archive of {log.place} is at {noted}: archive to there, or leave the URL out"
        )


def _time_us(batch: LogBatch, at: int) -> int:
    return int(batch.slice(at, 1).times.cast("int64")[0].as_py())
