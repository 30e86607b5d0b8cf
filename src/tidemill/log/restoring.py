"""Rows of an archive back into a log, with the numbers and the times that they had.

    archive   │ 41 … 60 │ 61 … 90 │ 91 … 99 │        each segment is read whole and checked
    log       41 … 60 61 … 90 ▏                      first = 41, next = 91: here it goes on

The log is new, or one that was being restored from the same archive; it writes that down before
its first row. So restoring again goes on where it ended, whatever it was that ended it, and takes
what was archived since. Nobody else may have sent rows: the last one is compared.

A store gives all rows of an append the time of its clock. Here that is the time which the rows had,
so each append holds rows of one moment, as the appends did that they came from.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle, pairwise
from typing import Any, Self

import numpy as np
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from tidemill.batch import LogBatch, project
from tidemill.clock import SystemClock
from tidemill.errors import Corrupt, InvalidInput, Locked, MissingRows, NotAQueue, Trimmed
from tidemill.files.queue.receipt import Durability
from tidemill.log.archive import parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.continuing import is_same_row
from tidemill.log.archive.manifest import Manifest, Segment
from tidemill.log.archive.notes import ARCHIVE_NOTE, RESTORED_NOTE
from tidemill.log.archive.objects import Absent
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.restored import Restored
from tidemill.log.contract import LogFrame, LogStore, LogWriter, Withdrawn
from tidemill.log.frames import encode_rows, missing
from tidemill.log.on_files.store import FileLog
from tidemill.log.opening import is_archive, open_store
from tidemill.log.tiered import TieredLog
from tidemill.urls import scheme_of


class RowsClock(SystemClock):
    """Says the time at which rows were written first."""

    def __init__(self) -> None:
        self.time_us = 0

    def time_ns(self) -> int:
        return self.time_us * 1_000


def restore(
    archive: str | os.PathLike[str],
    log: str | os.PathLike[str],
    *,
    on_progress: Callable[[Restored, int], None] = lambda _, __: None,  # (so far, rows in all)
    **options: Any,  # of the kind of log that the address names
) -> Restored:
    """Put the rows of an archive back into a log, which is made if it is not there.

    Rows keep their numbers and times; the log begins where the archive does, and goes on behind it.
    Every file is compared with its checksum. After a crash, and when more was archived since,
    calling it again goes on. A log that has other rows is refused. Consumers and producers are not
    in an archive, and the log does not have the archive as its own.

    >>> import tempfile, tidemill as tm
    >>> archive, copy = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> with tm.Log("memory:doc-restore") as log:
    ...     receipt = log.publisher().send([b"a", b"b", b"c"])
    ...     done = log.archive(archive)
    >>> tm.restore(archive, copy).rows
    3
    >>> with tm.Log(copy) as log:
    ...     log.read().rows(), log.ends()
    ([b'a', b'b', b'c'], Ends(first=1, next=4))
    """
    source = Archive(open_objects(archive))
    manifest = source.look()
    clock = RowsClock()
    with _opened(log, source, manifest, {**options, "clock": clock}) as store:
        begin = _begin(store, manifest)
        if begin >= manifest.next:
            return Restored(begin, begin, 0, 0)
        writer = store.claim()
        try:
            if store.ends().next != begin:  # From here on nobody else can send any.
                raise InvalidInput(f"somebody sends rows to {store.place}: restore to a new log")
            return _Restoring(source, store, writer, clock).run(manifest, on_progress)
        finally:
            writer.close()


class _Restoring:
    """Writes what is missing, segment by segment."""

    def __init__(
        self, archive: Archive, store: LogStore, writer: LogWriter, clock: RowsClock
    ) -> None:
        self._archive = archive
        self._store = store
        self._writer = writer
        self._clock = clock

    def run(self, manifest: Manifest, on_progress: Callable[[Restored, int], None]) -> Restored:
        at = self._store.ends().next
        done = Restored(at, at, 0, 0)
        while at < manifest.next:
            try:
                segment = self._archive.find(at)
                for batch in self._read(segment, at):
                    self._write(batch)
            except MissingRows as loss:
                _check_kept(self._archive, at, loss)
                raise
            # In a folder this waits for the disk, for all that was written before.
            self._store.set_note(RESTORED_NOTE, manifest.log, expected=manifest.log)
            at = segment.next
            done = Restored(done.first, at, done.segments + 1, done.bytes + segment.bytes)
            on_progress(done, manifest.next - done.first)
        return done

    def _read(self, segment: Segment, at: int) -> Iterator[LogBatch]:
        """The rows of a segment from `at` on; all of it is checked before the first is given."""
        archive = self._archive
        try:
            data = archive.objects.get(segment.file).data
        except Absent as absence:
            archive.look()
            if (again := archive.find(at)) == segment:
                hint = f"{segment.file} is gone from the archive {archive.place}"
                raise missing(at, segment.next - 1, hint) from absence
            # It became part of a larger one. What that holds beyond comes with the next turn.
            found = self._read(again, at)
            for batch in found:
                if batch.first_seq < segment.next:
                    yield batch.slice(0, segment.next - batch.first_seq)
            return
        if xxh3_128_hexdigest(data) != segment.digest:
            raise Corrupt(
                f"rows {segment.first} to {segment.next - 1} are damaged: the checksum of "
                f"{segment.file} of the archive {archive.place} does not match; rows before are "
                "restored"
            )
        payload = archive.known.versions.by_fingerprint(int(segment.schema, 16))
        footer = parquet.read_footer(data)
        for group in parquet.groups(footer):
            first = segment.first + group.at
            if first + group.rows > at:
                piece = data[group.start : group.end]
                batch = parquet.decode(footer, group, piece, payload, first)
                yield batch.slice(max(0, at - first))

    def _write(self, batch: LogBatch) -> None:
        """Append rows, those of one moment together."""
        writer, versions = self._writer, self._store.versions
        payload = batch.payload
        if not payload.schema.equals(versions.newest):
            payload = project(payload, versions.newest)
        rows_max = max(1, writer.group_bytes * len(batch) // max(1, payload.nbytes))
        times = batch.times.cast(pa.int64()).to_numpy()
        edges = [0, *(np.flatnonzero(np.diff(times)) + 1).tolist(), len(batch)]
        with _Lanes(writer, batch.first_seq) as lanes:
            for start, end in pairwise(edges):
                self._clock.time_us = int(times[start])
                for begin in range(start, end, rows_max):
                    part = payload.slice(begin, min(rows_max, end - begin))
                    frames = encode_rows(
                        part,
                        versions.newest_fingerprint,
                        bytes_max=writer.frame_bytes_max,
                        setting=writer.frame_bytes_setting,
                    )
                    lanes.append(part.num_rows, frames)


def _check_kept(archive: Archive, at: int, loss: MissingRows) -> None:
    """Raise `Trimmed` if rows from one on, which are missed, were given up meanwhile."""
    first = archive.look().first
    if at < first:
        raise Trimmed(
            f"rows {at} to {first - 1} of {archive.place} were trimmed while they were restored: "
            "restore to a new log",
            first=first,
        ) from loss


class _Lanes:
    """Appends of a writer side by side, as many as it takes; a server answers each with a commit.

    Numbers and times are given here, in order. A store with one lane takes the time as it writes,
    so that nothing is under way there when the clock moves on.

    Invariant: a row gets its own number or none. When an append fails, its numbers are given again;
    so each reservation says which number it is to follow.
    """

    def __init__(self, writer: LogWriter, first: int) -> None:
        self._writer = writer
        self._last = first - 1  # number that was reserved
        self._pool = ThreadPoolExecutor(writer.lanes) if writer.lanes > 1 else None
        self._under_way: dict[int, Future[Durability]] = {}
        self._turns = cycle(range(writer.lanes))

    def append(self, rows: int, frames: list[LogFrame]) -> None:
        lane = next(self._turns)
        if (before := self._under_way.get(lane)) is not None and before.exception() is not None:
            self.finish()
        try:
            numbers = self._writer.reserve(rows, self._last)
        except Withdrawn:
            self.finish()
            raise
        self._last = numbers.last
        if self._pool is None:
            self._writer.append(lane, numbers, frames)
        else:
            self._under_way[lane] = self._pool.submit(self._writer.append, lane, numbers, frames)

    def finish(self) -> None:
        """Wait for all; of failures, the one that the others follow from is raised."""
        found = [one.exception() for one in self._under_way.values()]
        failures = [error for error in found if error is not None]
        if failures:
            raise next((one for one in failures if not isinstance(one, Withdrawn)), failures[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.finish()
        finally:
            if self._pool is not None:
                self._pool.shutdown()


def _opened(
    log: str | os.PathLike[str], archive: Archive, manifest: Manifest, options: dict[str, Any]
) -> TieredLog:
    """The log to restore to, with the schema of the archive; nothing changes if it is refused."""
    scheme = scheme_of(log)
    if scheme == "memory":
        raise InvalidInput("rows are restored to a folder or to a server, not to memory")
    if scheme == "s3" or is_archive(log):
        raise InvalidInput(f"{log} is an archive itself: say to which log rows are restored")
    if scheme == "file":
        options.setdefault("sync", "none")  # The disk is waited for once in each segment.
    newest = manifest.versions.newest
    try:
        store = open_store(log, schema=None, create=False, **options)
    except NotAQueue:
        return open_store(log, schema=newest, **options)
    try:
        _check(store, archive, manifest)
        if any(version.equals(newest) for version in store.versions):
            return store
        store.versions.evolve(newest)  # Raises if it cannot be.
    except BaseException:
        store.close()
        raise
    store.close()
    return open_store(log, schema=newest, **options)


def _check(store: TieredLog, archive: Archive, manifest: Manifest) -> None:
    """Refuse a log that has rows which are not those of the archive."""
    if isinstance(store.hot, FileLog) and store.hot.is_published_here:
        raise Locked(f"this process publishes to {store.place}: close that publisher first")
    first, next_seq = store.ends()
    notes = store.notes()
    noted = notes.get(RESTORED_NOTE)
    if noted is None and ((first, next_seq) != (1, 1) or ARCHIVE_NOTE in notes):
        raise InvalidInput(f"{store.place} has rows of its own: restore to a new log")
    if noted not in (None, manifest.log):
        raise InvalidInput(
            f"{store.place} was restored from the archive of another log: take a new one"
        )
    if next_seq > 1 and next_seq < manifest.first:
        raise InvalidInput(
            f"{store.place} ends at row {next_seq - 1}, and {archive.place} begins at row "
            f"{manifest.first} since it was trimmed: restore to a new log"
        )
    last = min(next_seq, manifest.next) - 1  # that both have
    if last >= max(first, manifest.first):
        versions = store.versions if len(store.versions) >= len(manifest.versions) else None
        (mine,) = store.read(last, rows_max=1, bytes_max=1)
        try:
            (theirs,) = archive.read(
                last, rows_max=1, bytes_max=1, versions=versions or manifest.versions
            )
        except MissingRows as loss:
            _check_kept(archive, last, loss)
            raise
        if not is_same_row(mine, theirs):
            raise InvalidInput(
                f"row {last} of {store.place} is not the one of {archive.place}: somebody has sent "
                "rows since; restore to a new log"
            )


def _begin(store: TieredLog, manifest: Manifest) -> int:
    """Write down what is restored, and give the log its first number; returns where to go on."""
    first, next_seq = store.ends()
    if store.notes().get(RESTORED_NOTE) is None:
        if manifest.first > 1 and store.consumers():
            raise InvalidInput(
                f"{store.place} has consumers, which stand in front of row {manifest.first}, the "
                "first of the archive: remove them, or restore to a new log"
            )
        store.set_note(RESTORED_NOTE, manifest.log, expected=None)
    if (first, next_seq) == (1, 1):
        store.begin_at(manifest.first)
        return manifest.first
    return next_seq
