"""The files of segments, few of them open at a time, whatever the size of the queue.

kept    being written, or not known to be on disk: stays open, so that no sync error is missed
idle    opened again when it is next read; the ones not read for the longest are closed first
in use  some thread reads it: closed only when the last one is done, or the number of the
        handle could mean another file by then
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from tidemill.files.filesystem import Buffer, File, FileSystem
from tidemill.limits import FILES_OPEN_MAX

T = TypeVar("T")


class OpenFiles:
    """Opens files on demand and closes what is not needed."""

    def __init__(self, fs: FileSystem, files_max: int = FILES_OPEN_MAX) -> None:
        self._fs = fs
        self._files_max = files_max  # of those that are idle
        self._lock = threading.Lock()
        self._idle: OrderedDict[PooledFile, None] = OrderedDict()
        self._known: set[PooledFile] = set()

    def create(self, path: Path) -> PooledFile:
        """Make a new file; it is kept open."""
        file = PooledFile(self, path)
        file.handle = self._fs.open(path, create=True)
        file.is_kept = True
        with self._lock:
            self._known.add(file)
        return file

    def existing(self, path: Path) -> PooledFile:
        """A file that is there; it is opened when it is first used."""
        file = PooledFile(self, path)
        with self._lock:
            self._known.add(file)
        return file

    def close(self) -> None:
        """Close all files for good."""
        for file in list(self._known):
            file.close()

    def borrow(self, file: PooledFile) -> File:
        with self._lock:
            if file.is_closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(file.path))
            if file.handle is None:
                file.handle = self._fs.open(file.path, write=True)
            file.users += 1
            self._idle.pop(file, None)
            return file.handle

    def give_back(self, file: PooledFile) -> None:
        with self._lock:
            file.users -= 1
            surplus = self._settle(file)
        for handle in surplus:
            handle.close()

    def keep(self, file: PooledFile, *, open: bool) -> None:
        with self._lock:
            file.is_kept = open
            if open:
                self._idle.pop(file, None)
                if file.handle is None:
                    file.handle = self._fs.open(file.path, write=True)
            surplus = self._settle(file)
        for handle in surplus:
            handle.close()

    def forget(self, file: PooledFile) -> None:
        with self._lock:
            file.is_closed = True
            file.is_kept = False
            self._known.discard(file)
            surplus = self._settle(file)
        for handle in surplus:
            handle.close()

    def _settle(self, file: PooledFile) -> list[File]:
        """Put a file where it belongs now; returns the handles to close."""
        if file.users or file.is_kept or file.handle is None:
            return []
        if file.is_closed:
            self._idle.pop(file, None)
            handle, file.handle = file.handle, None
            return [handle]
        self._idle[file] = None
        self._idle.move_to_end(file)
        surplus = []
        while len(self._idle) > self._files_max:
            oldest, _ = self._idle.popitem(last=False)
            if oldest.handle is not None:
                surplus.append(oldest.handle)
                oldest.handle = None
        return surplus


class PooledFile:
    """A file that is open when it is used."""

    __slots__ = ("_pool", "handle", "is_closed", "is_kept", "path", "users")

    def __init__(self, pool: OpenFiles, path: Path) -> None:
        self._pool = pool
        self.path = path
        self.handle: File | None = None
        self.users = 0
        self.is_kept = False
        self.is_closed = False

    def keep_open(self) -> None:
        """Stay open from now on."""
        self._pool.keep(self, open=True)

    def let_go(self) -> None:
        """The file may be closed while nobody uses it."""
        self._pool.keep(self, open=False)

    def pread(self, length: int, offset: int) -> bytes:
        return self._use(lambda handle: handle.pread(length, offset))

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        self._use(lambda handle: handle.pwrite(parts, offset))

    def sync(self) -> None:
        self._use(lambda handle: handle.sync())

    def size(self) -> int:
        return self._use(lambda handle: handle.size())

    def truncate(self, length: int) -> None:
        self._use(lambda handle: handle.truncate(length))

    def allocate(self, length: int) -> None:
        self._use(lambda handle: handle.allocate(length))

    def lock(self) -> bool:
        return self._use(lambda handle: handle.lock())

    def close(self) -> None:
        """Close for good; whoever still reads ends first."""
        self._pool.forget(self)

    def _use(self, call: Callable[[File], T]) -> T:
        handle = self._pool.borrow(self)
        try:
            return call(handle)
        finally:
            self._pool.give_back(self)
