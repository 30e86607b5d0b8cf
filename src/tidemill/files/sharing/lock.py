"""One owner at a time: a lock of the operating system on a file, and in it who holds it.

The lock ends with the process, however that ends. The epoch grows with every owner and stands in
each record, so that what an earlier owner left behind can be told from what the present one wrote.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.errors import Locked
from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.format.record import EPOCH_MAX
from tidemill.lock_wait import ask_again

logger = logging.getLogger(__name__)

NAME = "lock"
_OPENING = b'{"pid": '  # how the file begins
_WAIT_S = 30.0  # for a lock that is only ever held for moments

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """A locked file; the lock goes with the handle."""

    def __init__(self, file: File) -> None:
        self.file = file
        self._is_held = True
        _held.add(self)

    @classmethod
    def try_acquire(cls, fs: FileSystem, path: Path) -> FileLock | None:
        """The lock of a file that is there; None if another holds it."""
        file = fs.open(path, write=True)
        if file.lock():
            return FileLock(file)
        file.close()
        return None

    def release(self) -> None:
        """Close the file; a second time does no harm, whatever else has its number by then."""
        _held.discard(self)
        if not self._is_held:
            return
        self._is_held = False
        try:
            self.file.close()
        except OSError as error:
            # The lock goes with the handle, and a close that fails has closed all the same.
            logger.warning("the lock was not closed well: %s", error)


class OwnerLock(FileLock):
    """The lock of a folder, held until `release`."""

    def __init__(self, file: File, epoch: int) -> None:
        super().__init__(file)
        self.last_epoch = epoch  # of the owner before

    @classmethod
    def acquire(cls, fs: FileSystem, folder: Path, *, wait_s: float = 0.0) -> OwnerLock:
        """Raises `Locked` if another owner has not let go after `wait_s`."""
        try:
            return cls._acquire(fs, folder)
        except Locked as error:
            if error.pid == os.getpid():
                # By a handle that nobody may refer to any more, and that is yet to be collected.
                gc.collect()
        return ask_again(lambda: cls._acquire(fs, folder), wait_s)

    @classmethod
    def _acquire(cls, fs: FileSystem, folder: Path) -> OwnerLock:
        path = folder / NAME
        try:
            file = fs.open(path, create=True)
        except FileExistsError:
            file = fs.open(path, write=True)
        try:
            if file.lock():
                return cls(file, read_owner(file)[1])
            pid = read_owner(file)[0]
        except BaseException:
            # Whoever tries again while the exception is held must not find it locked.
            file.close()
            raise
        file.close()
        owner = "another handle in this process" if pid == os.getpid() else f"process {pid}"
        if pid is None:
            owner = "another process"
        raise Locked(
            f"{folder} is open in {owner}; close it there, or wait until it has ended", pid=pid
        )

    def claim(self, epoch: int) -> None:
        """Say who the owner is."""
        data = json.dumps({"pid": os.getpid(), "epoch": epoch}).encode()
        self.file.truncate(0)
        self.file.pwrite([data], 0)


@contextmanager
def held(
    acquire: Callable[[FileSystem, Path], FileLock | None], fs: FileSystem, path: Path
) -> Iterator[FileLock]:
    """Hold for the block a lock that others have for moments only."""

    def ask() -> FileLock:
        lock = acquire(fs, path)
        if lock is None:
            raise Locked(f"{path} has been locked for {_WAIT_S:.0f} s; end whoever holds it")
        return lock

    lock = ask_again(ask, _WAIT_S)
    try:
        yield lock
    finally:
        lock.release()


def _forget_inherited() -> None:
    """A child of os.fork() shares the lock, and would hold it after its parent let go or died."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_inherited)


def is_owner_file(fs: FileSystem, path: Path) -> bool:
    """Whether a file may be the lock of a folder, as far as a crash can have left it."""
    try:
        file = fs.open(path)
    except IsADirectoryError:
        return False
    try:
        data = file.pread(256, 0).rstrip(b"\0")
    finally:
        file.close()
    return data[: len(_OPENING)] == _OPENING[: len(data)]


def read_owner(file: File) -> tuple[int | None, int]:
    """(process id, epoch) of the owner, as far as the file says."""
    try:
        found = json.loads(file.pread(256, 0))
        pid, epoch = found["pid"], found["epoch"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, 0
    # The file is a hint for people and may hold anything; the epochs that count stand in the
    # journal.
    is_sane = type(pid) is int and type(epoch) is int and 0 <= epoch < EPOCH_MAX
    return (pid, epoch) if is_sane else (None, 0)
