"""Transactions into a priority queue in a folder.

Tasks sort and split their rows as a push would, and write the frames to a file of their own, for
which nobody has to own the folder. Who commits owns it for that moment, and copies the frames into
the journal, with the mark behind them, as one operation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import pyarrow as pa

from tidemill.clock import Clock, SystemClock
from tidemill.errors import Corrupt, Locked, NotAQueue
from tidemill.files.bucket import choose
from tidemill.files.draft import PreparedFrame
from tidemill.files.filesystem import FileSystem, LocalFileSystem
from tidemill.files.folder import Folder, FolderOptions
from tidemill.files.log_operation import AppendRows
from tidemill.files.preparation import Preparation
from tidemill.files.settings import QUEUE, Settings, read_settings
from tidemill.files.staging import StagedFile, StagingFolder
from tidemill.files.storage import storage_errors
from tidemill.files.transaction import (
    Attempt,
    Outcome,
    StagedPart,
    Staging,
    Transaction,
    digest_of,
    in_order,
    mark_of,
    outcome_of,
)
from tidemill.limits import OWNER_WAIT_S


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)

_PAUSE_S = 0.001
_PAUSE_S_MAX = 0.1


class QueueStaging(Staging):
    """What is staged for a queue that is there. Options are as the queue was opened with."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        key: str | None = None,  # the column to order by; None: `key`
        wait_s: float = OWNER_WAIT_S,  # for another process to let go of the folder
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._fs = LocalFileSystem() if file_system is None else file_system
        self._clock = SystemClock() if clock is None else clock
        self._path = path
        self._key = key
        self._wait_s = wait_s
        self._folder = StagingFolder(self._fs, self._clock, path, name)

    def attempt(self, partition: int) -> Attempt:
        settings = settings_of(self._fs, self._path, QUEUE)
        bucket = choose(settings.bucket, None)
        preparation = Preparation(settings.versions, bucket, self._clock)
        return _QueueAttempt(self._folder, partition, preparation, self._key)

    def commit(self, transaction: Transaction | None, parts: Sequence[StagedPart]) -> Outcome:
        parts = in_order(parts)
        with owned(self._own, self._wait_s) as folder:
            outcome = self._commit(folder, transaction, parts)
        self._folder.sweep()
        return outcome

    def sweep(self) -> None:
        self._folder.sweep()

    def _own(self) -> Folder:
        # Looked at first, because opening would make what is not there.
        settings_of(self._fs, self._path, QUEUE)
        return Folder(self._fs, self._clock, self._path, FolderOptions())

    def _commit(
        self, folder: Folder, transaction: Transaction | None, parts: Sequence[StagedPart]
    ) -> Outcome:
        marks = folder.state.log
        if transaction is not None:
            marks.check_room(producer=transaction.checked().id)
            before = outcome_of(marks.marks.get(transaction.id), transaction)
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


class FileAttempt(Attempt):
    """An attempt that writes a file; one without rows writes none."""

    def __init__(self, folder: StagingFolder, partition: int) -> None:
        super().__init__()
        self._folder = folder
        self._partition = partition
        self._file: StagedFile | None = None

    def discard(self) -> None:
        if self._file is not None:
            self._file.discard()

    def _add(self, frames: Sequence[PreparedFrame]) -> None:
        if self._file is None:
            self._file = self._folder.create(self._partition)
        self._file.add(frames)

    def _finish(self) -> StagedPart:
        if self._file is None:
            return StagedPart(self._partition, "", 0, 0, 0, digest_of([]))
        return self._file.finish()


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


def settings_of(fs: FileSystem, path: Path, kind: str | None) -> Settings:
    """The settings of a folder, which must hold a queue or a log."""
    with storage_errors("opening", path):
        try:
            found = read_settings(fs, path, kind=kind)
        except (FileNotFoundError, NotADirectoryError):
            found = None
    if found is None:
        raise NotAQueue(f"{path} holds no queue and no log; make it first")
    return found


@contextmanager
def owned(own: Callable[[], T], wait_s: float) -> Iterator[T]:
    """Own something for the block; another process may own it just now, and not for long.

    The system can wait for a lock, but not with an end; so one asks again after a pause.
    """
    deadline_s, pause_s = time.monotonic() + wait_s, _PAUSE_S
    while True:
        try:
            owner = own()
            break
        except Locked:
            if time.monotonic() > deadline_s:
                raise
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
    try:
        yield owner
    finally:
        owner.close()
