"""A file system that looks at another one and changes nothing there.

Opening a journal cuts off what a crash left, removes what was retired, and syncs. Over a shadow the
same code shows what opening would find, without doing it: a name that is unlinked is gone from the
shadow alone, and so is what lies behind a truncation; one that is renamed has its new name here
alone. Bytes are never changed by opening, only
written again as they were read, so that writes need not be kept.

It may lie over a folder that another process writes to. A file that was there and is gone raises
`Vanished`, which nobody takes for an error of the disk. That of a segment may be used for another
by then, so that what was read counts if the name is still there afterwards.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from tidemill.errors import StorageFailed
from tidemill.files.disk.filesystem import Buffer, File, FileSystem, divide


class Vanished(StorageFailed):
    """A file was removed by the owner of the folder while somebody else looked at it."""


class ShadowFile:
    """An open file of a shadow."""

    def __init__(
        self,
        inner: File,
        lengths: dict[Path, int],
        path: Path,
        check_there: Callable[[Path], None],  # raises if there is no such file any more
    ) -> None:
        self._inner = inner
        self._lengths = lengths
        self._path = path
        self._check_there = check_there

    def _length(self, length: int, offset: int) -> int:
        end = self._lengths.get(self._path)
        return length if end is None else max(min(length, end - offset), 0)

    def pread(self, length: int, offset: int) -> bytes:
        data = self._inner.pread(self._length(length, offset), offset)
        if self._path.suffix == ".segment":
            self._check_there(self._path)
        return data

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        return divide(pa.py_buffer(self.pread(sum(lengths), offset)), lengths)

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        pass  # What opening writes is what it read there.

    def write_out(self, length: int, offset: int) -> None:
        pass

    def sync(self) -> None:
        pass

    def size(self) -> int:
        size = self._inner.size()
        return min(size, self._lengths.get(self._path, size))

    def links(self) -> int:
        return self._inner.links()

    def truncate(self, length: int) -> None:
        self._lengths[self._path] = length

    def allocate(self, length: int) -> None:  # noqa: ARG002  Opening never grows a file.
        raise _read_only(self._path)

    def lock(self) -> bool:
        raise _read_only(self._path)

    def close(self) -> None:
        self._inner.close()


class ShadowFileSystem:
    """Another file system, as it would be after what was asked of this one."""

    def __init__(self, inner: FileSystem) -> None:
        self._inner = inner
        self._hidden: set[Path] = set()
        self._renamed: dict[Path, Path] = {}  # to what a file is called over there
        self._lengths: dict[Path, int] = {}
        self._seen: set[Path] = set()

    def open(
        self,
        path: Path,
        *,
        write: bool = False,  # noqa: ARG002  Who writes is not told, since nothing comes of it.
        create: bool = False,
    ) -> File:
        if create:
            raise _read_only(path)
        if path in self._hidden:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return ShadowFile(self._open(path), self._lengths, path, self._check_there)

    def _check_there(self, path: Path) -> None:
        self._open(path).close()

    def _open(self, path: Path) -> File:
        try:
            return self._inner.open(self._renamed.get(path, path))
        except FileNotFoundError as error:
            if path not in self._seen:
                raise
            raise Vanished(
                f"{path} was removed while it was looked at; try again, or close the queue first"
            ) from error

    def scratch(self, folder: Path) -> File:
        raise _read_only(folder)

    def make_folder(self, path: Path) -> None:
        raise _read_only(path)

    def list_folder(self, path: Path) -> list[str]:
        names = self._inner.list_folder(path)
        self._seen.update(path / name for name in names)
        names += [target.name for target in self._renamed if target.parent == path]
        return sorted(name for name in names if path / name not in self._hidden)

    def rename(self, source: Path, target: Path) -> None:
        self._renamed[target] = self._renamed.pop(source, source)
        self._hidden.add(source)
        self._hidden.discard(target)

    def link(self, source: Path, target: Path) -> None:  # noqa: ARG002  It never links.
        raise _read_only(source)

    def unlink(self, path: Path) -> None:
        self._hidden.add(path)

    def remove_folder(self, path: Path) -> None:
        raise _read_only(path)

    def boot_id(self) -> bytes:
        return bytes(16)  # What depends on it is not looked at through a shadow.

    def sync_folder(self, path: Path) -> None:
        pass


def _read_only(path: Path) -> OSError:
    return OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
