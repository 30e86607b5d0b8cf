"""A log whose older rows are in an archive: one row of numbers, wherever the rows are.

                     archive                 │         store
    1 … first − 1    first … released − 1    │  released … next − 1
                              both may hold some: then the store gives them

The store stays what decides: ends, consumers, epochs, notes and what is trimmed are its own. Its
rows are asked for first. Those that it released are found in the archive that its note names; it
is opened when it is first needed, so that a log without one costs nothing.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tidemill.batch import Layout, LogBatch, SchemaVersions, project
from tidemill.errors import InvalidInput, MissingRows, NotAnArchive, SurroundingsError
from tidemill.limits import INT64_MAX
from tidemill.log.archive.notes import ARCHIVE_NOTE
from tidemill.log.contract import ConsumerClaim, ConsumerState, Ends, LogStore, LogWriter
from tidemill.log.refusals import trimmed

if TYPE_CHECKING:
    from tidemill.files.report import OnProgress
    from tidemill.log.archive.archive import Archive
    from tidemill.log.archive.archiver import Archiver
    from tidemill.log.archive.report import ArchiveReport

logger = logging.getLogger(__name__)


class TieredLog(LogStore):
    """One user of a log, with its archive if it has one. Owns `hot`, and closes it."""

    def __init__(self, hot: LogStore) -> None:
        self.hot = hot
        self.capabilities = hot.capabilities
        self.place = hot.place
        self._mutex = threading.Lock()
        self._archive: Archive | None = None
        self._released = 0  # rows below are known to be in the archive alone

    @property
    def versions(self) -> SchemaVersions:
        versions = self.hot.versions
        if self._archive is not None and len(self._archive.known.versions) > len(versions):
            return self._archive.known.versions
        return versions

    def versions_now(self) -> SchemaVersions:
        self.hot.versions_now()
        return self.versions

    def ends(self) -> Ends:
        return self.hot.ends()

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        try:
            return self._read(start, rows_max, bytes_max)
        except MissingRows as loss:
            # Rows that were given up while they were looked for are not missed.
            first = self.hot.ends().first
            if start < first:
                raise trimmed(start, first) from loss
            raise

    def _read(self, start: int, rows_max: int, bytes_max: int) -> list[LogBatch]:
        if start >= self._released:
            try:
                return self._in_newest(self.hot.read(start, rows_max=rows_max, bytes_max=bytes_max))
            except MissingRows as loss:
                if not self._find(start, loss):
                    raise
        ends = self.hot.ends()
        if start < ends.first:
            raise trimmed(start, ends.first)
        archive = self.archive()
        assert archive is not None  # `_find` has opened it.
        return archive.read(start, rows_max=rows_max, bytes_max=bytes_max, versions=self.versions)

    def seq_at(self, time_us: int) -> int:
        while True:
            before = self._archived()
            archive = self.archive()
            found = None if archive is None else archive.seq_at(time_us)
            if found is not None:
                return max(found, self.hot.ends().first)
            found = self.hot.seq_at(time_us)
            if self._archived() == before:
                return found
            # Rows went from one to the other, and may have been looked for where they were not.

    def layout(self, start: int, end: int) -> Layout:
        ends = self.hot.ends()
        hot = self.hot.layout(start, end)
        archive = self.archive()
        if archive is None or start >= end:
            return hot
        start, end = max(start, ends.first), min(end, max(ends.next, start))
        hot = _last_run(hot, end)
        begin = int(hot.firsts[0]) if len(hot.firsts) else INT64_MAX
        if begin <= start:
            return hot
        archive.look()
        return Layout.joined([archive.layout(start, end, cut=begin), hot])

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        return self.hot.watch(wakeup)

    def claim(self) -> LogWriter:
        return self.hot.claim()

    def consumers(self) -> dict[str, ConsumerState]:
        return self.hot.consumers()

    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:
        return self.hot.claim_consumer(name, start=start)

    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:
        self.hot.move_pointer(claim, pointer)

    def check_claim(self, claim: ConsumerClaim) -> None:
        self.hot.check_claim(claim)

    def remove_consumer(self, name: str) -> None:
        self.hot.remove_consumer(name)

    def trim(self, before: int, *, force: bool = False) -> int:
        first = self.hot.trim(before, force=force)
        try:
            archive = self.archive()
            if archive is not None:
                from tidemill.log.archive.dropping import drop_below  # noqa: PLC0415

                drop_below(archive, first)
        except SurroundingsError as error:
            # They are given up all the same; the next archiver removes them.
            logger.warning("rows below %d are still in the archive: %s", first, error)
        return first

    def begin_at(self, first: int) -> None:
        self.hot.begin_at(first)

    def sync(self) -> None:
        self.hot.sync()

    def release(self, before: int) -> None:
        self.hot.release(before)

    def notes(self) -> dict[str, str]:
        return self.hot.notes()

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        return self.hot.set_note(name, value, expected=expected)

    def close(self) -> None:
        self.hot.close()

    def archive(self) -> Archive | None:
        """The archive, opened; None if the log has none."""
        _ = self.hot.versions  # Raises `Closed`, before a lock is taken.
        with self._mutex:
            if self._archive is None and (url := self.hot.notes().get(ARCHIVE_NOTE)) is not None:
                # Reading Parquet takes modules that a log without an archive does without.
                from tidemill.log.archive.archive import Archive  # noqa: PLC0415
                from tidemill.log.archive.pending import published_in  # noqa: PLC0415
                from tidemill.log.archive.place import open_objects  # noqa: PLC0415

                self._archive = Archive(open_objects(url), published_in(self.hot))
            return self._archive

    def own_archive(self) -> Archive | None:
        """The archive; also of one that is opened alone, which is the log as well."""
        from tidemill.log.archived_log import ArchivedLog  # noqa: PLC0415 (as above)

        return self.hot.archive() if isinstance(self.hot, ArchivedLog) else self.archive()

    def _archived(self) -> int:
        """The first row that is not in the archive, as of now."""
        archive = self.archive()
        return 0 if archive is None else archive.look().next

    def _find(self, seq: int, loss: MissingRows) -> bool:
        """Whether a row that the store lacks is in the archive."""
        archive = self.archive()
        if archive is None:
            return False
        if not archive.holds(seq):
            # What is known may be older again by now, of a look of another thread that took longer.
            manifest = archive.look()
            if not manifest.covered <= seq < manifest.next:
                return False
        self._released = max(self._released, min(loss.last + 1, archive.known.next))
        return True

    def _in_newest(self, batches: list[LogBatch]) -> list[LogBatch]:
        """Rows as the archive's would be: in the newest version that is known of either."""
        newest = self.versions.newest
        if not batches or batches[0].schema is newest or batches[-1].schema.equals(newest):
            return batches
        return [
            LogBatch(project(batch.payload, newest), batch.first_seq, batch.times)
            for batch in batches
        ]


def verify_archive(
    log: TieredLog, *, deep: bool, repair: bool, on_progress: OnProgress | None
) -> ArchiveReport:
    """Verify the archive of a log; of an archive that is opened alone, that."""
    from tidemill.log.archive.checkup import verify  # noqa: PLC0415 (as above)
    from tidemill.log.archived_log import ArchivedLog  # noqa: PLC0415

    archive = log.own_archive()
    if archive is None:
        raise NotAnArchive(f"{log.place} has no archive: `log.archive(url)` makes one")
    hot = None if isinstance(log.hot, ArchivedLog) else log.hot
    return verify(archive, log=hot, deep=deep, repair=repair, on_progress=on_progress)


def _last_run(layout: Layout, end: int) -> Layout:
    """What lies behind the last gap before `end`. A gap is where rows are in the archive alone,
    and so are all before it, there as well.
    """
    lasts = layout.firsts + layout.rows
    if not len(lasts) or lasts[-1] < end:
        return Layout.of([])
    gaps = np.flatnonzero(layout.firsts[1:] != lasts[:-1])
    at = int(gaps[-1]) + 1 if len(gaps) else 0
    return Layout(layout.firsts[at:], layout.rows[at:], layout.sizes[at:]) if at else layout


def open_archiver(
    log: TieredLog,
    url: str | os.PathLike[str] | None,
    *,
    releases: bool = True,  # False: rows of the log itself are left alone, whoever owns it
) -> Archiver:
    """The right to archive a log to `url`, or to where it was archived before."""
    from tidemill.log.archive.archive import Archive  # noqa: PLC0415 (as above)
    from tidemill.log.archive.archiver import Archiver  # noqa: PLC0415
    from tidemill.log.archive.place import open_objects  # noqa: PLC0415

    if url is None:
        url = log.notes().get(ARCHIVE_NOTE)
        if url is None:
            raise InvalidInput(f"{log.place} has no archive yet: say where it is to be")
    if releases:
        log.sync()  # Raises `Locked`, before whoever archives already is fenced in vain.
    return Archiver(log.hot, Archive(open_objects(url)))
