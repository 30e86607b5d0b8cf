"""The files of segments, few of them open at a time, whatever the size of the queue.

kept   being written, or not known to be on disk: stays open, so that no sync error is missed
other  opened when it is first read; past a number of them, the one open for the longest is let go

A handle that is let go is closed when the last thread that reads through it is done: it is dropped,
and closes as it goes. So reading takes no lock, and no number of a closed handle can come to mean
another file under a reader.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tidemill.errors import Closed
from tidemill.files.disk.filesystem import Buffer, File, FileSystem
from tidemill.limits import FILES_OPEN_MAX

logger = logging.getLogger(__name__)


class _Handle:
    """An open file that closes when nobody refers to it any more."""

    __slots__ = ("file",)

    def __init__(self, file: File) -> None:
        self.file = file

    def __del__(self) -> None:
        try:
            self.file.close()
        except OSError as error:
            # Nobody is left to tell; what was written is known to be on disk, or is synced
            # elsewhere.
            logger.warning("a file could not be closed: %s", error)


class OpenFiles:
    """Opens files on demand and lets go of what is not needed."""

    def __init__(self, fs: FileSystem, *, write: bool = True) -> None:
        self._fs = fs
        self._write = write
        # Held while a file is opened. A scan that is collected then lets its segments go, which may
        # close files of theirs.
        self._lock = threading.RLock()
        self._kept: set[PooledFile] = set()
        self._others: dict[PooledFile, None] = {}  # open, in the order they were opened

    def create(self, path: Path) -> PooledFile:
        """Make a new file; it is kept open."""
        return self.given(path, self._fs.open(path, create=True))

    def given(self, path: Path, opened: File) -> PooledFile:
        """A file that is open already; it is kept open."""
        file = PooledFile(self, path)
        file.handle = _Handle(opened)
        with self._lock:
            self._kept.add(file)
        return file

    def existing(self, path: Path) -> PooledFile:
        """A file that is there; it is opened when it is first used."""
        return PooledFile(self, path)

    def close(self) -> None:
        """Close all files for good."""
        with self._lock:
            files = [*self._kept, *self._others]
        for file in files:
            file.close()

    def open(self, file: PooledFile, *, keep: bool = False) -> _Handle:
        """Open a file if it is not."""
        with self._lock:
            if file.is_closed:
                raise Closed(f"{file.path} was closed while it was read; open the queue again")
            handle = file.handle
            if handle is None:
                handle = file.handle = _Handle(self._fs.open(file.path, write=self._write))
            if keep:
                self._kept.add(file)
                self._others.pop(file, None)
            elif file not in self._kept:
                self._others[file] = None
                self._drop_surplus()
            return handle

    def release(self, file: PooledFile, *, for_good: bool) -> None:
        """Keep a file open no longer; `for_good`: nobody may open it again."""
        with self._lock:
            self._kept.discard(file)
            if for_good:
                self._others.pop(file, None)
                file.is_closed = True
                file.handle = None
            elif file.handle is not None:
                self._others[file] = None
                self._drop_surplus()

    def _drop_surplus(self) -> None:
        while len(self._others) > FILES_OPEN_MAX:
            oldest = next(iter(self._others))
            self._others.pop(oldest, None)
            oldest.handle = None


class PooledFile:
    """A file that is open when it is used."""

    __slots__ = ("_pool", "handle", "is_closed", "path")

    def __init__(self, pool: OpenFiles, path: Path) -> None:
        self._pool = pool
        self.path = path
        self.handle: _Handle | None = None
        self.is_closed = False

    def keep_open(self) -> None:
        """Stay open from now on."""
        self._pool.open(self, keep=True)

    def let_go(self) -> None:
        """The file need not stay open."""
        self._pool.release(self, for_good=False)

    def pread(self, length: int, offset: int) -> bytes:
        handle = self.handle or self._pool.open(self)
        return handle.file.pread(length, offset)

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        handle = self.handle or self._pool.open(self)
        return handle.file.pread_buffers(lengths, offset)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        handle = self.handle or self._pool.open(self)
        handle.file.pwrite(parts, offset)

    def write_out(self, length: int, offset: int) -> None:
        handle = self.handle or self._pool.open(self)
        try:
            handle.file.write_out(length, offset)
        except OSError as error:
            # Nothing hangs on it: whatever is wrong with the disk, the sync tells.
            logger.debug("%s was not written ahead of its sync: %s", self.path, error)

    def sync(self) -> None:
        handle = self.handle or self._pool.open(self)
        handle.file.sync()

    def size(self) -> int:
        handle = self.handle or self._pool.open(self)
        return handle.file.size()

    def links(self) -> int:
        handle = self.handle or self._pool.open(self)
        return handle.file.links()

    def truncate(self, length: int) -> None:
        handle = self.handle or self._pool.open(self)
        handle.file.truncate(length)

    def allocate(self, length: int) -> None:
        handle = self.handle or self._pool.open(self)
        handle.file.allocate(length)

    def lock(self) -> bool:
        handle = self.handle or self._pool.open(self)
        return handle.file.lock()

    def close(self) -> None:
        """Close for good; whoever still reads ends first."""
        self._pool.release(self, for_good=True)
