"""The few calls on files that a folder is built from, as a parameter.

The real implementation is thin; tests pass one in memory that records every call and then
enumerates the states a crash may leave behind. Hence the rule of this package: no other module
touches a file.

What the calls promise is what POSIX promises, no more: `pwrite` and `truncate` last after `sync` of
the file; a name created, renamed or unlinked lasts after `sync_folder` of its folder. Every call
may raise `OSError`.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from tidemill.files.disk.memory import row_memory

logger = logging.getLogger(__name__)

Buffer: TypeAlias = (
    object  # anything with the buffer protocol; typing has no name for it before Python 3.12
)

_IOV_MAX = 512
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class File(Protocol):
    """An open file. Safe to use from several threads, since no call moves a shared position."""

    def pread(self, length: int, offset: int) -> bytes:
        """The bytes at `offset`; fewer than `length` only at the end of the file."""

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        """The same as so many buffers, filled one behind the other, in memory for rows that stay:
        one allocator then holds them all.
        """

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        """Write all the parts, one behind the other, from `offset` on."""

    def write_out(self, length: int, offset: int) -> None:
        """Have the system begin to bring what was written there to the disk: a hint before a sync,
        which then has less to wait for.
        """

    def sync(self) -> None:
        """Make what was written last, with as much metadata as reading it back needs."""

    def size(self) -> int: ...

    def links(self) -> int:
        """How many names the file has."""

    def truncate(self, length: int) -> None: ...

    def allocate(self, length: int) -> None:
        """Grow the file to `length` bytes of zeroes that are really there, so that a full disk
        shows now.
        """

    def lock(self) -> bool:
        """Take the exclusive lock of the file without waiting; False if another holds it."""

    def close(self) -> None: ...


class FileSystem(Protocol):
    """Where files live."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        """Open a file; `create` makes a new one and fails if there is one already. Links are not
        followed.
        """

    def scratch(self, folder: Path) -> File:
        """A file without a name, on the disk that `folder` is on: it is gone once it is closed, or
        the process has ended. Nothing of it lasts.
        """

    def make_folder(self, path: Path) -> None: ...

    def list_folder(self, path: Path) -> list[str]: ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file a new name, replacing what had that name."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name, which must be new."""

    def unlink(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder, which must be empty."""

    def sync_folder(self, path: Path) -> None:
        """Make the names in a folder last."""

    def boot_id(self) -> bytes:
        """16 bytes that change when the machine starts anew; zeroes where it does not say."""


class FileFacts(NamedTuple):
    """What the operating system knows of a name."""

    is_folder: bool
    is_file: bool  # and no link, pipe or the like
    mode: int  # the permission bits
    owner: int  # the user's id


@runtime_checkable
class Surroundings(Protocol):
    """What a file system may also know; the doctor asks, and so does whoever looks for links."""

    def facts(self, path: Path) -> FileFacts: ...

    def free_bytes(self, path: Path) -> int:
        """How much may still be written to the disk that `path` is on."""

    def is_locked(self, path: Path) -> bool:
        """Whether somebody holds the lock of a file."""

    def user(self) -> int:
        """The id of the user that this process acts as."""


def divide(data: pa.Buffer, lengths: Sequence[int]) -> list[pa.Buffer]:
    """The bytes in pieces of these lengths; what is missing is missing at the end.

    >>> [piece.to_pybytes() for piece in divide(pa.py_buffer(b"abcd"), [1, 2, 3])]
    [b'a', b'bc', b'd']
    """
    pieces = []
    for length in lengths:
        # Arrow would go beyond the end without a word.
        pieces.append(data.slice(0, min(length, len(data))))
        data = data.slice(len(pieces[-1]))
    return pieces


class LocalFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_locked_by")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._locked_by = 0  # the process that holds the lock by this handle

    def pread(self, length: int, offset: int) -> bytes:
        data = os.pread(self._fd, length, offset)
        if len(data) == length or not data:
            return data
        parts = [data]
        done = len(data)
        while done < length and (data := os.pread(self._fd, length - done, offset + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        memory = row_memory()
        buffers = [pa.allocate_buffer(length, memory_pool=memory) for length in lengths]
        if len(buffers) <= _IOV_MAX and os.preadv(self._fd, buffers, offset) == sum(lengths):
            return buffers
        data = pa.py_buffer(self.pread(sum(lengths), offset))
        return divide(data, lengths)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        while len(parts) > _IOV_MAX:
            self.pwrite(parts[:_IOV_MAX], offset)
            offset += sum(map(len, parts[:_IOV_MAX]))  # type: ignore[arg-type]
            parts = parts[_IOV_MAX:]
        done = os.pwritev(self._fd, parts, offset)  # type: ignore[arg-type]
        if done != sum(map(len, parts)):  # type: ignore[arg-type]
            rest = memoryview(b"".join(parts))[done:]  # type: ignore[arg-type]
            while rest:
                written = os.pwrite(self._fd, rest, offset + done)
                rest = rest[written:]
                done += written

    if sys.platform == "darwin":

        def write_out(self, length: int, offset: int) -> None:
            pass

        def sync(self) -> None:
            # fsync on macOS leaves data in the drive's cache.
            fcntl.fcntl(self._fd, fcntl.F_FULLFSYNC)

        def allocate(self, length: int) -> None:
            if length > self.size():
                os.ftruncate(self._fd, length)

    else:

        def write_out(self, length: int, offset: int) -> None:
            # Before Linux drops pages, which is what it is told to, it writes those that are dirty;
            # it does not wait for that, and drops none of them.
            os.posix_fadvise(self._fd, offset, length, os.POSIX_FADV_DONTNEED)

        def sync(self) -> None:
            os.fdatasync(self._fd)

        def allocate(self, length: int) -> None:
            size = self.size()
            if length > size:
                os.posix_fallocate(self._fd, size, length - size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def links(self) -> int:
        return os.fstat(self._fd).st_nlink

    def truncate(self, length: int) -> None:
        os.ftruncate(self._fd, length)

    def lock(self) -> bool:
        while not self._try_lock(fcntl.LOCK_EX):
            if not self._try_lock(fcntl.LOCK_SH):
                return False
            # Only somebody who wants to know whether it is locked holds it, and not for long.
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            time.sleep(0)
        self._locked_by = os.getpid()
        return True

    def is_locked(self) -> bool:
        """Whether somebody holds the lock; taken in common, which no owner takes for a lock."""
        if not self._try_lock(fcntl.LOCK_SH):
            return True
        fcntl.flock(self._fd, fcntl.LOCK_UN)
        return False

    def _try_lock(self, kind: int) -> bool:
        try:
            fcntl.flock(self._fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        if self._locked_by == os.getpid():
            # A child that was forked a moment ago shares the lock, and may not have let go of it
            # yet. The child itself must not do this: it would be the parent's lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)

    def __del__(self) -> None:
        try:
            self.close()
        except OSError as error:
            # Nobody is left to tell; what was written is known to be on disk, or is synced
            # elsewhere.
            logger.warning("a file could not be closed: %s", error)


# No link is followed, and nobody waits for whoever is at the other end of a pipe.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class LocalFileSystem:
    """The operating system's files, for the owner's eyes only: folders 0700, files 0600."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        flags = _SAFELY | (os.O_RDWR if write or create else os.O_RDONLY)
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        fd = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise OSError(errno.EPERM, "it is no regular file", str(path))
        return LocalFile(fd)

    def scratch(self, folder: Path) -> File:
        # Where the file system cannot do without, it has a name for a moment.
        with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
            return LocalFile(os.dup(file.fileno()))

    def facts(self, path: Path) -> FileFacts:
        found = os.lstat(path)
        mode = found.st_mode
        return FileFacts(stat.S_ISDIR(mode), stat.S_ISREG(mode), stat.S_IMODE(mode), found.st_uid)

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def is_locked(self, path: Path) -> bool:
        file = LocalFile(os.open(path, os.O_RDONLY | _SAFELY))
        try:
            return file.is_locked()
        finally:
            file.close()

    def user(self) -> int:
        return os.geteuid()

    def make_folder(self, path: Path) -> None:
        os.mkdir(path, 0o700)

    def list_folder(self, path: Path) -> list[str]:
        return sorted(os.listdir(path))

    def rename(self, source: Path, target: Path) -> None:
        os.replace(source, target)

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target, follow_symlinks=False)

    def unlink(self, path: Path) -> None:
        os.unlink(path)

    def remove_folder(self, path: Path) -> None:
        os.rmdir(path)

    def boot_id(self) -> bytes:
        return _boot_id()

    def sync_folder(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


@cache
def _boot_id() -> bytes:
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))[:16].ljust(16, b"\0")
    except (OSError, ValueError):
        return bytes(16)
