"""Transactions into a priority queue in a folder.

Tasks sort and split their rows as a push would, and write the frames to a file of their own, for
which nobody has to own the folder. Who commits owns it for that moment, and copies the frames into
the journal, with the mark behind them, as one operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pyarrow as pa

from tidemill.clock import Clock
from tidemill.errors import Corrupt
from tidemill.files.commit.log_operation import AppendRows
from tidemill.files.commit.preparation import Preparation
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.folder_options import FolderOptions
from tidemill.files.format.settings import QUEUE
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
from tidemill.files.state.bucket import choose
from tidemill.files.state.log_state import Mark
from tidemill.limits import OWNER_WAIT_S


class QueueStaging(FolderStaging):
    """What is staged for a queue that is there; its bucket function is one that is recorded."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        key: str | None = None,  # the column to order by; None: `key`
        wait_s: float = OWNER_WAIT_S,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(path, name, wait_s=wait_s, file_system=file_system, clock=clock)
        self._key = key

    def attempt(self, partition: int) -> Attempt:
        settings = self._settings(QUEUE)
        bucket = choose(settings.bucket, None)
        preparation = Preparation(settings.versions, bucket, self._clock)
        return _QueueAttempt(self._folder, partition, preparation, self._key)

    def commit(self, transaction: Transaction | None, parts: Sequence[StagedPart]) -> Outcome:
        parts = in_order(parts)
        with owned(self._own, self._wait_s) as folder:
            outcome = self._commit(folder, transaction, parts)
        self._folder.sweep()
        return outcome

    def committed(self, transaction_id: str) -> Mark | None:
        with owned(self._own, self._wait_s) as folder:
            return folder.state.log.marks.get(transaction_id)

    def seen(self, transaction_id: str) -> Mark | None:
        looking = FolderOptions(on_corruption="continue")
        with closing(Follower(self._fs, self._clock, self._path, looking)) as view:
            return view.state.log.marks.get(transaction_id)

    def _own(self) -> Folder:
        # Looked at first, because opening would make what is not there.
        self._settings(QUEUE)
        return Folder(self._fs, self._clock, self._path, FolderOptions())

    def _commit(
        self, folder: Folder, transaction: Transaction | None, parts: Sequence[StagedPart]
    ) -> Outcome:
        marks = folder.state.log
        if transaction is not None:
            marks.check_room(producer=transaction.checked().id)
            before = outcome_of(marks.marks.get(transaction.id), transaction, parts)
            if before is not None:
                return before
        first = folder.state.next_seq
        frames = [frame for part in parts for frame in self._frames(folder, part)]
        # Twice, as everything that is rare and that much hangs on: without it, a repetition of
        # the transaction would be written again.
        mark = [] if transaction is None else [mark_of(transaction, first, parts)] * 2
        try:
            folder.commit(AppendRows(first, frames, mark, sync=True))
        finally:
            self._folder.close()
        return Outcome(first, folder.state.arrived, is_new=True)

    def _frames(self, folder: Folder, part: StagedPart) -> Iterator[PreparedFrame]:
        of = folder.bucket.of
        for header, body in self._folder.frames(part):
            bucket = of(header.key_min)
            if of(header.key_max) != bucket:
                raise Corrupt(f"a staged frame of {part.name!r} reaches over two buckets")
            yield PreparedFrame(
                bucket, body.encoded(), header.key_min, header.key_max, header.fingerprint
            )


class _QueueAttempt(FileAttempt):
    def __init__(
        self, folder: StagingFolder, partition: int, preparation: Preparation, key: str | None
    ) -> None:
        super().__init__(folder, partition)
        self._preparation = preparation
        self._key = key

    def _stage(self, batch: pa.RecordBatch) -> None:
        rows = self._preparation.rows(batch, self._key)
        self._add(self._preparation.frames(rows))
