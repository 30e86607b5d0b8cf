"""The real file system, counting what is asked of it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tidemill.files.disk.filesystem import Buffer, File, LocalFileSystem


class CountingFileSystem(LocalFileSystem):
    """Counts syncs of segments and the writes to them; a sync can be held up on purpose."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.sync_began = threading.Event()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        return _CountingFile(self, path.suffix, super().open(path, write=write, create=create))


class _CountingFile:
    def __init__(self, owner: CountingFileSystem, kind: str, inner: File) -> None:
        self._owner = owner
        self._kind = kind
        self._inner = inner

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        self._owner.calls["write" + self._kind] += 1
        self._inner.pwrite(parts, offset)

    def sync(self) -> None:
        self._owner.calls["sync" + self._kind] += 1
        if self._kind == ".segment":
            self._owner.sync_began.set()
            self._owner.may_sync.wait()
        self._inner.sync()

    def pread(self, length: int, offset: int) -> bytes:
        self._owner.calls["bytes read" + self._kind] += length
        return self._inner.pread(length, offset)

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        return self._inner.pread_buffers(lengths, offset)

    def write_out(self, length: int, offset: int) -> None:
        self._owner.calls["write out" + self._kind] += 1
        self._inner.write_out(length, offset)

    def size(self) -> int:
        return self._inner.size()

    def links(self) -> int:
        return self._inner.links()

    def truncate(self, length: int) -> None:
        self._inner.truncate(length)

    def allocate(self, length: int) -> None:
        self._inner.allocate(length)

    def lock(self) -> bool:
        return self._inner.lock()

    def close(self) -> None:
        self._inner.close()
