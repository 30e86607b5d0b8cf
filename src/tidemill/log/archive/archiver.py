"""Moves rows from a log to its archive.

    hot rows ──gather──▶ Parquet ──put──▶ segment ──read back, compare──▶ manifest ──▶ release
                                             │                               │            │
    a crash here leaves:   nothing        an orphan                   rows that are in both places

Nothing is released before the manifest that names its copy is in place, and no segment gets into a
manifest before it was read back from the store and found to hold the same rows. Nor before the log
has them on disk: after a power cut it would give their numbers to others. Orphans are swept by the
next archiver; rows that are in both places are released by the next pass.

Two archivers cannot harm each other. Each takes the next epoch, by a change of the manifest, and
the older one raises `Fenced` when it comes to change the manifest; what it has put by then is not
named by any manifest and never will be. So whatever has an older epoch and no place in the
manifest can be removed at once, without asking a clock.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from tidemill.batch import SchemaVersions
from tidemill.errors import InvalidInput, MissingRows, NotAnArchive, Trimmed
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archived import Archived
from tidemill.log.archive.compacting import Compaction, compacted, rows_of, small_groups
from tidemill.log.archive.continuing import check_continued
from tidemill.log.archive.dropping import drop_below
from tidemill.log.archive.manifest import Manifest, Segment, encode_page, new_page_name
from tidemill.log.archive.notes import ARCHIVE_NOTE, LOG_NOTE
from tidemill.log.archive.pending import published_in, settle
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import SegmentWriter, Sizes
from tidemill.log.archive.sweeping import find_unnamed
from tidemill.log.contract import LogStore

# From the first row and the end to segments that are stored, one behind the other, not yet named.
StoreRows: TypeAlias = Callable[[int, int], Iterable[list[Segment]]]


class Archiver:
    """The right to archive a log, until another takes it. `log` is where its rows are hot."""

    def __init__(self, log: LogStore, archive: Archive, sizes: Sizes | None = None) -> None:
        self._log = log
        self._archive = archive
        self._sizes = Sizes() if sizes is None else sizes
        # Nothing is made where it is refused: a manifest makes an archive of a folder.
        _check_place(log, archive)
        archive.objects.check_free()
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

    @property
    def url(self) -> str:
        """Where it archives to."""
        return self._archive.objects.url

    @property
    def _writer(self) -> SegmentWriter:
        return SegmentWriter(self._archive, self.epoch, self._sizes)

    def is_at(self, url: str | os.PathLike[str] | None) -> bool:
        """Whether it archives to there; None stands for where the log was archived before."""
        return url is None or open_objects(url).url == self._archive.objects.url

    def run(
        self,
        end: int,
        on_progress: Callable[[Archived], None] = lambda _: None,
        store: StoreRows | None = None,  # who stores rows; None: this process
    ) -> Archived:
        """Archive all rows before `end` that are not yet, and release them.

        Raises `Fenced` if another archiver has taken over. Whatever it raises, nothing is lost:
        another pass goes on where this one ended.
        """
        log, archive = self._log, self._archive
        while True:
            manifest = self._writer.current(archive.look())
            try:
                check_continued(log, archive, manifest)
                if manifest.first < (first := log.ends().first):
                    manifest = drop_below(archive, first)
                done = self._run(manifest, end, on_progress, store or self.store)
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
        manifest = self._writer.current(self._archive.look())
        found = find_unnamed(self._archive, manifest, everywhere=everywhere)
        self._archive.objects.delete(found.orphans)
        return len(found.orphans)

    def _run(
        self,
        manifest: Manifest,
        end: int,
        on_progress: Callable[[Archived], None],
        store: StoreRows,
    ) -> Archived:
        done = Archived(manifest.next, manifest.next, 0, 0)
        # What an earlier pass archived, and did not come to release.
        self._log.release(manifest.next)
        for segments in store(done.next, end):
            if not segments:
                continue
            if len(manifest.segments) >= 2 * self._sizes.manifest_segments:
                self._fold(manifest)
            self._log.sync()
            try:
                manifest = self._archive.swap(self._adding(segments))
            except Trimmed:
                # Nobody will name them any more.
                self._archive.objects.delete([one.file for one in segments])
                raise
            self._log.release(manifest.next)
            done = Archived(
                done.first,
                segments[-1].next,
                done.segments + len(segments),
                done.bytes + sum(one.bytes for one in segments),
            )
            on_progress(done)
        return done

    def store(self, start: int, end: int) -> Iterator[list[Segment]]:
        """Rows as segments, one after the other."""
        return ([segment] for segment in self._writer.store(self._log, start, end))

    def _adding(self, segments: Sequence[Segment]) -> Callable[[Manifest], Manifest]:
        versions: SchemaVersions = self._log.versions
        first, last = segments[0].first, segments[-1].file

        def change(manifest: Manifest) -> Manifest:
            self._writer.current(manifest)
            if manifest.segments and manifest.segments[-1].file == last:
                return manifest  # By a try whose answer was lost.
            if manifest.next != first:
                # Rows up to there were given up meanwhile, by force.
                raise Trimmed(
                    f"rows up to {manifest.next - 1} were trimmed while they were archived",
                    first=manifest.next,
                )
            for segment in segments:
                manifest = manifest.added(segment, versions)
            return manifest

        return change

    def _fold(self, manifest: Manifest) -> None:
        """Move the older half of the segments that stand in the manifest to a page."""
        older = manifest.segments[: self._sizes.manifest_segments]
        page, data = encode_page(older, new_page_name(older[0].first, self.epoch))
        self._writer.put_new(page.file, data)

        def change(old: Manifest) -> Manifest:
            self._writer.current(old)
            if old.segments[: len(older)] != older:
                return old  # It was done already, or some are gone.
            return replace(old, pages=(*old.pages, page), segments=old.segments[len(older) :])

        self._archive.swap(change)

    def _compact(self) -> bool:
        """Make one segment of small ones that lie side by side; False if there are too few."""
        manifest = self._writer.current(self._archive.look())
        enough = self._sizes.compacted_segments
        small = next(small_groups(manifest.segments, self._sizes, least=enough, most=enough), None)
        if small is None:
            return False
        try:
            batches = rows_of(self._archive, small)
        except MissingRows:
            if small[0] in self._archive.look().segments:
                raise
            return True  # They were trimmed meanwhile; look again what there is.
        self.replace([Compaction(small, self._writer.put(batches))])
        return True

    def replace(self, done: Sequence[Compaction]) -> Manifest:
        """Put segments that were made of others in their place, as far as these are there still."""
        archive = self._archive
        manifest = archive.swap(compacted(archive, self._writer, done, self._sizes))
        # Should it fail here, the next change of the manifest does it.
        archive.objects.delete(manifest.gone)

        def is_named(file: Segment) -> bool:
            try:
                return archive.holds(file.first) and archive.find(file.first).file == file.file
            except MissingRows:
                if archive.look().covered <= file.first:
                    raise
                return False  # It was trimmed in this moment.

        # Of rows that were trimmed meanwhile.
        archive.objects.delete([one.new.file for one in done if not is_named(one.new)])
        return manifest


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
    if ARCHIVE_NOTE not in log.notes():
        log.set_note(ARCHIVE_NOTE, archive.objects.url, expected=None)
    _check_place(log, archive)  # Another may have been faster.


def _check_place(log: LogStore, archive: Archive) -> None:
    noted = log.notes().get(ARCHIVE_NOTE)
    if noted not in (None, archive.objects.url):
        raise InvalidInput(
            f"the archive of {log.place} is at {noted}: archive to there, or leave the URL out"
        )
