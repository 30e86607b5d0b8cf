"""Rows that others wrote as Parquet files, published as segments of an archive, all at once.

    files ──▶ check, number ──▶ segments ──▶ pending in the manifest ──▶ the log skips ──▶ settled
                                   │                    │                     │
    a crash here leaves:        orphans         dropped by the next      they count; whoever looks
                                                archiver, with them      next settles them

The store of the log decides, as it does about all else. The manifest names the segments as pending
first: they are there, and count for nobody. Then the log skips their numbers, in one atomic step
with the transaction's mark and a note of the pending token. That step is the commit. From then on
every reader counts what is pending under this token as segments like any other, and the next change
of the manifest, by whomever, makes them such.

Before, the publisher is fenced and all hot rows are archived, so that numbers go on where the
archive ends. Nobody publishes in between: who tries to, fences this, and nothing is committed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from xxhash import xxh3_64_hexdigest, xxh3_128, xxh3_128_hexdigest

from tidemill.batch import fingerprint
from tidemill.errors import Fenced, SchemaMismatch
from tidemill.files.staging.folder_staging import owned
from tidemill.files.staging.transaction import Outcome, Transaction, outcome_of
from tidemill.files.state.log_state import Mark
from tidemill.limits import OWNER_WAIT_S
from tidemill.log.archive import parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.manifest import Manifest, Pending, Segment, new_segment_name
from tidemill.log.archive.notes import BULK_NOTE
from tidemill.log.archive.objects import Present
from tidemill.log.contract import LogStore, LogWriter, NoteChange

_THREADS = 4  # which read files: the system does most of it


class GivenFile(NamedTuple):
    """A Parquet file with the columns of a segment, all of whose rows have one time."""

    path: Path
    rows: int
    bytes: int
    footer_bytes: int
    digest: str
    footer_digest: str


def load(
    log: LogStore,  # where its rows are hot
    archive: Archive,
    paths: Sequence[Path],
    transaction: Transaction | None,
    *,
    payload: pa.Schema,
    time_us: int,  # that all rows have in the files
    wait_s: float = OWNER_WAIT_S,  # for another process to let go of the log
) -> Outcome:
    """Publish files in this order, once; the rows of a log before them are archived first.

    Whatever it raises, either all of it is published or nothing, and the mark of the transaction
    tells which; to run it again is safe.
    """
    archiver = None
    if log.capabilities.many_processes:
        # Most of it while the publisher goes on.
        archiver = Archiver(log, archive)
        archiver.run(log.ends().next)
    with owned(log.claim, wait_s) as writer:
        archiver = archiver or Archiver(log, archive)
        archiver.run(log.ends().next)
        bulk = Bulk(log, archive, archiver.epoch)
        return bulk.publish(writer, paths, transaction, payload=payload, time_us=time_us)


class Bulk:
    """One publication of files, by the one who is archiver and publisher meanwhile."""

    def __init__(self, log: LogStore, archive: Archive, epoch: int) -> None:
        self._log = log
        self._archive = archive
        self._epoch = epoch  # of the archiver

    def publish(
        self,
        writer: LogWriter,
        paths: Sequence[Path],
        transaction: Transaction | None,
        *,
        payload: pa.Schema,
        time_us: int,
    ) -> Outcome:
        """Publish files in this order. All hot rows are archived, and nothing is pending."""
        if transaction is not None:
            before = outcome_of(writer.mark(transaction.checked().id), transaction)
            if before is not None:
                return before
        last_us = max((part.time_max for part in self._archive.look().parts[-1:]), default=0)
        with ThreadPoolExecutor(_THREADS) as pool:
            if last_us > time_us:
                # Somebody has published since; times never go back.
                time_us = last_us
                paths = list(pool.map(lambda one: parquet.restamp(one, payload, last_us), paths))
            files = list(pool.map(lambda path: _check(path, payload), paths))
            files = [one for one in files if one.rows]
            numbers = writer.reserve(sum(one.rows for one in files))
            segments = self._numbered(files, numbers.first, payload, time_us)
            paths = [one.path for one in files]
            list(pool.map(self._adopt, paths, (one.file for one in segments)))
        token = secrets.token_hex(16)
        note = NoteChange(BULK_NOTE, token, self._log.notes().get(BULK_NOTE))
        marks = [] if transaction is None else [_mark(transaction, numbers.first, segments)]
        if segments:
            self._archive.swap(self._adding(Pending(token, note.expected or "", tuple(segments))))
        try:
            writer.skip(numbers, time_us, note, marks)
        except Fenced:
            # Its answer may have been lost with the right to publish; the note tells.
            if self._log.notes().get(BULK_NOTE) != token:
                raise
        self._archive.swap(lambda old: old)  # Settles.
        return Outcome(numbers.first, numbers.last, is_new=True)

    def _numbered(
        self, files: Sequence[GivenFile], first: int, payload: pa.Schema, time_us: int
    ) -> list[Segment]:
        segments = []
        for file in files:
            segments.append(
                Segment(
                    file=new_segment_name(first, self._epoch),
                    first=first,
                    rows=file.rows,
                    bytes=file.bytes,
                    footer_bytes=file.footer_bytes,
                    time_min=time_us,
                    time_max=time_us,
                    digest=file.digest,
                    footer_digest=file.footer_digest,
                    schema=f"{fingerprint(payload):016x}",
                )
            )
            first += file.rows
        return segments

    def _adopt(self, path: Path, name: str) -> None:
        with suppress(Present):  # A try whose answer was lost has put it.
            self._archive.objects.adopt(path, name)

    def _adding(self, pending: Pending) -> Callable[[Manifest], Manifest]:
        versions = self._log.versions

        def change(manifest: Manifest) -> Manifest:
            if manifest.epoch != self._epoch or manifest.next != pending.segments[0].first:
                raise Fenced(
                    f"another archiver took over {self._archive.place}; nothing was published: "
                    "run it again"
                )
            known = manifest.versions if len(manifest.versions) > len(versions) else versions
            return replace(manifest, pending=pending, versions=known)

        return change


def _check(path: Path, payload: pa.Schema) -> GivenFile:
    """Read a file back, and see that it has the columns of a segment."""
    with pa.OSFile(str(path)) as source:
        data = source.read_buffer()
    footer = parquet.read_footer(data)
    footer_bytes = parquet.footer_bytes(data)
    problem = parquet.misfit(footer, payload)
    if problem:
        raise SchemaMismatch(f"{path} does not fit the log: {problem}")
    return GivenFile(
        path=path,
        rows=footer.num_rows,
        bytes=data.size,
        footer_bytes=footer_bytes,
        digest=xxh3_128_hexdigest(data),
        footer_digest=xxh3_64_hexdigest(data[data.size - footer_bytes :]),
    )


def _mark(transaction: Transaction, first: int, segments: Sequence[Segment]) -> Mark:
    rows = sum(segment.rows for segment in segments)
    digest = xxh3_128("".join(segment.digest for segment in segments).encode()).digest()
    digest += transaction.run
    return Mark(transaction.id, transaction.number, first, first + rows - 1, digest)
