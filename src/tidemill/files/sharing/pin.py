"""Pins: hard links in `readers/<id>/` that keep segments for a reader beside the owner.

    readers/4711-1/lock                       locked for as long as the reader lives
    readers/4711-1/0000000000000041.segment   the same file as in journal/
    readers/4711-1/0000000000000041.summary

The owner unlinks retired segments as it always does; their bytes go with the last link. A reader
that ends removes its folder. One that was killed leaves it, without the lock, and whoever comes
next sweeps it away.

A reader may lend its folder to other processes, of which it does not know when they are done, or
whether they ever begin. Then a file `lent` stands in the place of the lock: it says until when the
folder is kept. Whoever reads from it puts that off.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path

from tidemill.errors import NoAccess
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.journal.segment import Segment
from tidemill.files.sharing.lock import FileLock

logger = logging.getLogger(__name__)

FOLDER = "readers"
LOCK_NAME = "lock"
LENT_NAME = "lent"
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV, errno.EOPNOTSUPP}


class Pin:
    """The folder of links of one reader."""

    def __init__(self, fs: FileSystem, journal: Path, folder: Path, lock: FileLock) -> None:
        self.folder = folder
        self._fs = fs
        self._journal = journal
        self._lock = lock
        self._names: set[str] = set()
        self._is_leaving = False
        self._is_gone = False
        # Scans let go wherever they are collected, also in the middle of a call here.
        self._mutex = threading.RLock()

    @classmethod
    def make(cls, fs: FileSystem, path: Path, journal: Path) -> Pin:
        """A new folder of its own, for the queue at `path`."""
        try:
            if FOLDER not in fs.list_folder(path):
                _make_folder(fs, path / FOLDER)
            numbers = count(1)
            while True:
                folder = path / FOLDER / f"{os.getpid()}-{next(numbers)}"
                if _make_folder(fs, folder) and (lock := _lock(fs, folder)) is not None:
                    return cls(fs, journal, folder, lock)
        except OSError as error:
            raise _refused(error, path) from error

    def link(self, name: str, source: str | None = None) -> None:
        """Keep a file of the journal, which may have another name there; `FileNotFoundError` if it
        is gone.
        """
        try:
            self._fs.link(self._journal / (source or name), self.folder / name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _refused(error, self._journal.parent) from error
        self._names.add(name)

    def unlink(self, segments: Sequence[Segment]) -> None:
        """Let segments go."""
        with self._mutex:
            for segment in segments:
                segment.file.close()
                for name in [one for one in self._names if one[:16] == segment.path.name[:16]]:
                    self.unlink_name(name)
            if self._is_leaving and not self._names:
                self._remove()

    def keep(self, segments: Iterable[Segment]) -> None:
        """Let all files go but those of these segments."""
        numbers = {segment.path.name[:16] for segment in segments}
        for name in [one for one in self._names if one[:16] not in numbers]:
            self.unlink_name(name)

    def leave(self) -> None:
        """Remove the folder once its last link goes."""
        with self._mutex:
            self._is_leaving = True
            if not self._names:
                self._remove()

    def remove(self) -> None:
        """Remove the folder and all that is in it."""
        with self._mutex:
            for name in sorted(self._names):
                self.unlink_name(name)
            self._remove()

    def lend(self, until_s: float) -> Path:
        """End without removing the folder, which others read from until then."""
        with self._mutex:
            write_loan(self._fs, self.folder, until_s)
            self._is_gone = True
            self._lock.release()
        return self.folder

    def unlink_name(self, name: str) -> None:
        """Let one file go, if it is linked."""
        if name in self._names:
            self._names.remove(name)
            self._fs.unlink(self.folder / name)

    def _remove(self) -> None:
        if self._is_gone:
            return
        self._is_gone = True
        self._fs.unlink(self.folder / LOCK_NAME)
        try:
            self._fs.remove_folder(self.folder)
        except OSError as error:
            # Whoever sweeps took it for the rest of a dead one, and was faster, or is at it.
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
        self._lock.release()


def write_loan(fs: FileSystem, folder: Path, until_s: float) -> None:
    """Keep a folder that was lent until then, in seconds since 1970. A write that is torn by a
    crash, or by another that says the same, keeps it for nobody: such a time is in the past.
    """
    try:
        file = fs.open(folder / LENT_NAME, create=True)
    except FileExistsError:
        file = fs.open(folder / LENT_NAME, write=True)
    try:
        file.pwrite([f"{int(until_s):020d}".encode()], 0)
    finally:
        file.close()


def _is_lent(fs: FileSystem, folder: Path) -> bool:
    try:
        file = fs.open(folder / LENT_NAME)
    except FileNotFoundError:
        return False
    try:
        said = file.pread(20, 0)
    finally:
        file.close()
    return said.isdigit() and int(said) > time.time()


def sweep_readers(fs: FileSystem, path: Path) -> list[str]:
    """Remove what readers left behind that are no more; returns their ids."""
    readers = path / FOLDER
    try:
        names = fs.list_folder(readers)
    except FileNotFoundError:
        return []
    return [name for name in names if _sweep(fs, readers / name)]


def try_sweep_readers(fs: FileSystem, path: Path) -> None:
    """The same for an owner, who has more important things to do than to fail over it."""
    try:
        for name in sweep_readers(fs, path):
            logger.info("swept away what reader %s of %s left behind", name, path)
    except OSError as error:
        logger.warning("dead readers of %s stay for now: %s", path, error)


def _sweep(fs: FileSystem, folder: Path) -> bool:
    """Remove the folder of a reader if it is dead."""
    try:
        lock = FileLock.try_acquire(fs, folder / LOCK_NAME)
    except FileNotFoundError:
        # It is being made, or the rest of one that a crash left: whoever makes the lock has it.
        lock = _lock(fs, folder)
    if lock is None:
        return False
    try:
        # It may be that of a reader which has ended meanwhile, and another has its name by now.
        if not lock.file.links() or _is_lent(fs, folder):
            return False
        # A reader that is being born and waits for the lock must see that its folder is gone.
        lock.file.pwrite([b"swept"], 0)
        names = [name for name in fs.list_folder(folder) if name != LOCK_NAME]
        for name in [*names, LOCK_NAME]:
            fs.unlink(folder / name)
        fs.remove_folder(folder)
    finally:
        lock.release()
    return True


def _make_folder(fs: FileSystem, folder: Path) -> bool:
    try:
        fs.make_folder(folder)
    except FileExistsError:
        return False
    return True


def _lock(fs: FileSystem, folder: Path) -> FileLock | None:
    """The lock of a folder that has none; None if somebody else was faster to make one, or swept
    the folder away.
    """
    try:
        file = fs.open(folder / LOCK_NAME, create=True)
    except (FileNotFoundError, FileExistsError):
        return None
    if file.lock() and not file.size():
        return FileLock(file)
    file.close()
    return None


def _refused(error: OSError, path: Path) -> OSError | NoAccess:
    if error.errno not in _FORBIDDEN:
        return error
    return NoAccess(
        f"a reader pins the segments it reads by hard links in {path / FOLDER}, so that the owner "
        f"of the queue cannot take them away under it, and may not: {error.strerror}; give it "
        "write access to that folder and to the files of the journal, or read a copy of the queue"
    )
