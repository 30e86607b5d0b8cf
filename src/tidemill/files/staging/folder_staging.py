"""Transactions into a folder, whatever it holds: files of tasks, and an owner for a moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from tidemill.clock import Clock, SystemClock
from tidemill.errors import NotAQueue
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.format.settings import Settings, read_settings
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.staging.staging import StagedFile, StagingFolder
from tidemill.files.staging.transaction import Attempt, StagedPart, Staging, digest_of
from tidemill.limits import OWNER_WAIT_S
from tidemill.lock_wait import ask_again


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)


class FolderStaging(Staging):
    """What is staged for a queue or a log that is there."""

    def __init__(
        self,
        path: Path,
        name: str,
        *,
        wait_s: float = OWNER_WAIT_S,  # for another process to let go of the folder
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._fs = LocalFileSystem() if file_system is None else file_system
        self._clock = SystemClock() if clock is None else clock
        self._path = path
        self._wait_s = wait_s
        self._folder = StagingFolder(self._fs, self._clock, path, name)

    def sweep(self) -> None:
        self._folder.sweep()

    def _settings(self, kind: str) -> Settings:
        return settings_of(self._fs, self._path, kind)


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
    """Own something for the block; another process may own it just now, and not for long."""
    owner = ask_again(own, wait_s)
    try:
        yield owner
    finally:
        owner.close()
