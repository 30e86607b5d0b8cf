"""Transactions into a log in a folder: as those of a priority queue, without keys."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa

from tidemill.batch import SchemaVersions, to_payload
from tidemill.files.folder.folder_options import FolderOptions
from tidemill.files.format.settings import LOG
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.readers.follower import Follower
from tidemill.files.staging.folder_staging import FileAttempt, FolderStaging, owned
from tidemill.files.staging.staging import StagingFolder
from tidemill.files.staging.transaction import (
    Attempt,
    Outcome,
    StagedPart,
    Transaction,
    in_order,
    mark_of,
    outcome_of,
)
from tidemill.limits import FRAME_BODY_BYTES_MAX
from tidemill.log.contract import LogFrame, LogWriter, Mark
from tidemill.log.frames import encode_rows
from tidemill.log.on_files.store import FileLog


class FileLogStaging(FolderStaging):
    """What is staged for a log that is there."""

    def attempt(self, partition: int) -> Attempt:
        versions = self._settings(LOG).versions
        return _LogAttempt(self._folder, partition, versions)

    def commit(self, transaction: Transaction | None, parts: Sequence[StagedPart]) -> Outcome:
        parts = in_order(parts)
        with self._claimed() as writer:
            outcome = self._commit(writer, transaction, parts)
        self._folder.sweep()
        return outcome

    def committed(self, transaction_id: str) -> Mark | None:
        with self._claimed() as writer:
            return writer.mark(transaction_id)

    def seen(self, transaction_id: str) -> Mark | None:
        looking = FolderOptions(kind=LOG, on_corruption="continue")
        with closing(Follower(self._fs, self._clock, self._path, looking)) as view:
            return view.state.log.marks.get(transaction_id)

    @contextmanager
    def _claimed(self) -> Iterator[LogWriter]:
        with (
            FileLog(self._path, create=False, file_system=self._fs, clock=self._clock) as log,
            owned(log.claim, self._wait_s) as writer,
        ):
            yield writer

    def _commit(
        self, writer: LogWriter, transaction: Transaction | None, parts: Sequence[StagedPart]
    ) -> Outcome:
        if transaction is not None:
            before = outcome_of(writer.mark(transaction.checked().id), transaction, parts)
            if before is not None:
                return before
        frames = [
            LogFrame(body.encoded(), header.fingerprint)
            for part in parts
            for header, body in self._folder.frames(part)
        ]
        numbers = writer.reserve(sum(part.rows for part in parts))
        # Twice, because without it a repetition of the transaction would be written again.
        mark = [] if transaction is None else [mark_of(transaction, numbers.first, parts)] * 2
        try:
            writer.append(0, numbers, frames, mark)
        finally:
            self._folder.close()
        return Outcome(numbers.first, numbers.last, is_new=True)


class _LogAttempt(FileAttempt):
    def __init__(self, folder: StagingFolder, partition: int, versions: SchemaVersions) -> None:
        super().__init__(folder, partition)
        self._versions = versions

    def _stage(self, batch: pa.RecordBatch) -> None:
        versions = self._versions
        payload = to_payload(batch, schema=versions.newest)
        frames = encode_rows(payload, versions.newest_fingerprint, bytes_max=FRAME_BODY_BYTES_MAX)
        self._add([PreparedFrame(0, one.body, 0, 0, one.fingerprint) for one in frames])
