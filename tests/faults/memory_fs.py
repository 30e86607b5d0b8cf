"""A file system in memory that records every change, for enumerating what a crash may leave of
it.

It behaves as Linux does as far as `tidemill.files` can tell: the same errors, the same locks,
files that live on under open handles after their name is gone. What was written is seen at once
by every handle; what of it would survive a power cut is told by `crash_states` from the trace.

Invariant: the trace replayed over the initial image gives the live content, whatever the threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from threading import RLock

import pyarrow as pa

from tests.faults.trace import (
    ROOT,
    Allocate,
    Content,
    Entry,
    Image,
    Mark,
    NameChange,
    Operation,
    Sync,
    SyncFolder,
    Trace,
    Truncate,
    Write,
)
from tidemill.files.disk.filesystem import Buffer, divide

_boots = count(1)


def os_error(number: int, path: object) -> OSError:
    """The subclass of OSError that the operating system would raise."""
    return OSError(number, os.strerror(number), str(path))


class _Inode:
    """A live file. The bytes from `len(data)` to `size` are zeroes that take no memory."""

    __slots__ = ("data", "locked_by", "number", "size")

    def __init__(self, number: int, content: Content) -> None:
        self.number = number
        # Shared with the image until the first write.
        self.data: bytes | bytearray = content.data
        self.size = content.size
        self.locked_by: MemoryFile | None = None

    def content(self) -> Content:
        return Content(bytes(self.data).rstrip(b"\0"), self.size)


class MemoryFile:
    """An open file of a `MemoryFileSystem`."""

    __slots__ = ("_inode", "_is_dead", "_owner", "_path", "_write")

    def __init__(self, owner: MemoryFileSystem, inode: _Inode, path: Path, *, write: bool) -> None:
        self._owner: MemoryFileSystem | None = owner
        self._inode = inode
        self._path = path
        self._write = write
        self._is_dead = False

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        return divide(pa.py_buffer(self.pread(sum(lengths), offset)), lengths)

    def pread(self, length: int, offset: int) -> bytes:
        self._live()
        if length < 0 or offset < 0:
            raise os_error(errno.EINVAL, self._path)
        inode = self._inode
        length = min(length, inode.size - offset)
        if length <= 0:
            return b""
        data = bytes(inode.data[offset : offset + length])
        return data if len(data) == length else data + bytes(length - len(data))

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        owner = self._live(write=True)
        if offset < 0:
            raise os_error(errno.EINVAL, self._path)
        data = b"".join(parts)  # type: ignore[arg-type]
        if not data:
            return
        inode = self._inode
        with owner.guard:
            if isinstance(inode.data, bytes):
                inode.data = bytearray(inode.data)
            if offset > len(inode.data):
                inode.data.extend(bytes(offset - len(inode.data)))
            inode.data[offset : offset + len(data)] = data
            inode.size = max(inode.size, offset + len(data))
            owner.trace.operations.append(Write(inode.number, offset, data, self._path))

    def write_out(self, length: int, offset: int) -> None:
        self._live(write=True)  # It promises nothing, so that no crash is different for it.

    def sync(self) -> None:
        owner = self._live()
        with owner.guard:
            owner.trace.operations.append(Sync(self._inode.number, self._path))

    def sync_failed(self) -> None:
        """Record a sync that reported an error: what it should have written may be lost whatever
        follows.
        """
        owner = self._live()
        with owner.guard:
            owner.trace.operations.append(Sync(self._inode.number, self._path, failed=True))

    def size(self) -> int:
        self._live()
        return self._inode.size

    def links(self) -> int:
        owner = self._live()
        with owner.guard:
            return owner.links_of(self._inode.number)

    def truncate(self, length: int) -> None:
        owner = self._live(write=True)
        if length < 0:
            raise os_error(errno.EINVAL, self._path)
        inode = self._inode
        with owner.guard:
            inode.data = inode.data[:length]
            inode.size = length
            owner.trace.operations.append(Truncate(inode.number, length, self._path))

    def allocate(self, length: int) -> None:
        owner = self._live(write=True)
        inode = self._inode
        with owner.guard:
            if length > inode.size:
                inode.size = length
                owner.trace.operations.append(Allocate(inode.number, length, self._path))

    def lock(self) -> bool:
        owner = self._live()
        with owner.guard:
            if self._inode.locked_by not in (None, self):
                return False
            self._inode.locked_by = self
            return True

    def close(self) -> None:
        if self._is_dead:
            # The process is gone, and with it whoever would have called this.
            return
        owner = self._live()
        with owner.guard:
            self.drop()
            owner.handles.discard(self)

    def drop(self) -> None:
        """Give up the file and its lock, as the kernel does for a process that is gone."""
        self._owner = None
        if self._inode.locked_by is self:
            self._inode.locked_by = None

    def _live(self, *, write: bool = False) -> MemoryFileSystem:
        owner = self._owner
        if owner is None or (write and not self._write):
            raise os_error(errno.EBADF, self._path)
        return owner


class MemoryFileSystem:
    """Files in memory. Relative paths start at the root; `..` is not understood."""

    def __init__(self, image: Image | None = None) -> None:
        image = Image() if image is None else image
        self.trace = Trace(image)
        # Guards names, contents and trace together; the files use it too. Reentrant, because a
        # handle may close when it is collected, in the middle of another call.
        self.guard = RLock()
        self.handles: set[MemoryFile] = set()
        # A disk that is taken up again is that of a machine that was started anew.
        self.boot = next(_boots).to_bytes(16, "little")
        self._folders = {number: dict(entries) for number, entries in image.folders.items()}
        self._files = {
            number: _Inode(number, content) for number, content in image.contents.items()
        }
        self._next = max(*self._folders, *self._files, ROOT, ROOT) + 1

    @classmethod
    def replayed(cls, trace: Trace, point: int) -> MemoryFileSystem:
        """The disk in the middle of a trace, with what was pending there still pending: what the
        next process finds when one was killed.
        """
        fs = cls(trace.initial)
        for operation in trace.operations[:point]:
            fs._replay(operation)
        return fs

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> MemoryFile:
        with self.guard:
            folder, name = self._place(path)
            number = self._folders[folder].get(name)
            if create:
                if number is not None:
                    raise os_error(errno.EEXIST, path)
                inode = _Inode(self._number(), Content(b"", 0))
                self._files[inode.number] = inode
                self._put("create", Entry(folder, name, inode.number), path, makes="file")
            elif number is None:
                raise os_error(errno.ENOENT, path)
            elif number in self._folders:
                raise os_error(errno.EISDIR, path)
            else:
                inode = self._files[number]
            handle = MemoryFile(self, inode, path, write=write or create)
            self.handles.add(handle)
            return handle

    def scratch(self, folder: Path) -> MemoryFile:
        with self.guard:
            self._folder(folder)  # It must be there.
        # No crash leaves anything of it, so that it is none of this disk's files.
        return MemoryFileSystem().open(Path("scratch"), create=True)

    def make_folder(self, path: Path) -> None:
        with self.guard:
            folder, name = self._place(path)
            if not name or name in self._folders[folder]:
                raise os_error(errno.EEXIST, path)
            number = self._number()
            self._folders[number] = {}
            self._put("make_folder", Entry(folder, name, number), path, makes="folder")

    def links_of(self, number: int) -> int:
        """How many names a file has."""
        return sum(list(names.values()).count(number) for names in self._folders.values())

    def list_folder(self, path: Path) -> list[str]:
        with self.guard:
            return sorted(self._folders[self._folder(path)])

    def rename(self, source: Path, target: Path) -> None:
        with self.guard:
            from_folder, from_name = self._place(source)
            to_folder, to_name = self._place(target)
            number = self._folders[from_folder].get(from_name)
            if number is None:
                raise os_error(errno.ENOENT, source)
            there = self._folders[to_folder].get(to_name)
            if there == number:
                return
            self._may_replace(number, there, target)
            del self._folders[from_folder][from_name]
            removed = Entry(from_folder, from_name, number)
            self._put("rename", Entry(to_folder, to_name, number), source, removed=removed)

    def link(self, source: Path, target: Path) -> None:
        with self.guard:
            from_folder, from_name = self._place(source)
            to_folder, to_name = self._place(target)
            number = self._folders[from_folder].get(from_name)
            if number is None:
                raise os_error(errno.ENOENT, source)
            if number in self._folders:
                raise os_error(errno.EPERM, source)
            if to_name in self._folders[to_folder]:
                raise os_error(errno.EEXIST, target)
            self._put("link", Entry(to_folder, to_name, number), target)

    def remove_folder(self, path: Path) -> None:
        with self.guard:
            folder, name = self._place(path)
            number = self._folders[folder].get(name)
            if number is None:
                raise os_error(errno.ENOENT, path)
            if number not in self._folders:
                raise os_error(errno.ENOTDIR, path)
            if self._folders[number]:
                raise os_error(errno.ENOTEMPTY, path)
            del self._folders[folder][name]
            del self._folders[number]
            removed = Entry(folder, name, number)
            self.trace.operations.append(NameChange("remove_folder", None, removed, path))

    def boot_id(self) -> bytes:
        return self.boot

    def unlink(self, path: Path) -> None:
        with self.guard:
            folder, name = self._place(path)
            number = self._folders[folder].get(name)
            if number is None:
                raise os_error(errno.ENOENT, path)
            if number in self._folders:
                raise os_error(errno.EISDIR, path)
            del self._folders[folder][name]
            removed = Entry(folder, name, number)
            self.trace.operations.append(NameChange("unlink", None, removed, path))

    def sync_folder(self, path: Path) -> None:
        with self.guard:
            self.trace.operations.append(SyncFolder(self._folder(path), path))

    def mark(self, label: str, payload: object = None, *, promise: bool = True) -> None:
        """Note in the trace what was attempted or promised. Only a promise makes known states
        worth judging again.
        """
        with self.guard:
            self.trace.operations.append(Mark(label, payload, promise))

    def image(self) -> Image:
        """Everything written so far: what the death of the process, but not of the machine,
        leaves.
        """
        with self.guard:
            folders = {number: dict(entries) for number, entries in self._folders.items()}
            named = {number for entries in folders.values() for number in entries.values()}
            return Image(
                folders,
                {number: self._files[number].content() for number in named & self._files.keys()},
            )

    def die(self) -> None:
        """End the process: every handle goes bad and every lock is released; the files stay."""
        with self.guard:
            for handle in self.handles:
                handle.drop()
                handle._is_dead = True
            self.handles.clear()

    def _replay(self, operation: Operation) -> None:
        self.trace.operations.append(operation)
        match operation:
            case Write(inode, offset, data):
                file = self._files[inode]
                content = bytearray(file.data)
                content.extend(bytes(max(offset - len(content), 0)))
                content[offset : offset + len(data)] = data
                file.data = content
                file.size = max(file.size, offset + len(data))
            case Truncate(inode, length):
                self._files[inode].data = self._files[inode].data[:length]
                self._files[inode].size = length
            case Allocate(inode, length):
                self._files[inode].size = max(self._files[inode].size, length)
            case NameChange(_, put, removed, _, makes):
                if removed is not None:
                    del self._folders[removed.folder][removed.name]
                    self._folders.pop(removed.inode if put is None else 0, None)
                if put is None:
                    return
                if makes == "file":
                    self._files[put.inode] = _Inode(put.inode, Content(b"", 0))
                elif makes == "folder":
                    self._folders[put.inode] = {}
                self._folders[put.folder][put.name] = put.inode
                self._next = max(self._next, put.inode + 1)

    def _number(self) -> int:
        self._next += 1
        return self._next - 1

    def _put(
        self,
        kind: str,
        entry: Entry,
        path: Path,
        *,
        removed: Entry | None = None,
        makes: str | None = None,
    ) -> None:
        self._folders[entry.folder][entry.name] = entry.inode
        self.trace.operations.append(NameChange(kind, entry, removed, path, makes))

    def _may_replace(self, number: int, there: int | None, target: Path) -> None:
        is_folder = number in self._folders
        if there is None:
            return
        if there not in self._folders:
            if is_folder:
                raise os_error(errno.ENOTDIR, target)
        elif not is_folder:
            raise os_error(errno.EISDIR, target)
        elif self._folders[there]:
            raise os_error(errno.ENOTEMPTY, target)

    def _place(self, path: Path) -> tuple[int, str]:
        """The folder that a path's last name is in, and that name; the root has none."""
        parts = path.parts[1:] if path.anchor else path.parts
        if ".." in parts:
            raise os_error(errno.EINVAL, path)
        return (self._walk(parts[:-1], path), parts[-1]) if parts else (ROOT, "")

    def _folder(self, path: Path) -> int:
        return self._walk(path.parts[1:] if path.anchor else path.parts, path)

    def _walk(self, parts: Sequence[str], path: Path) -> int:
        number = ROOT
        for part in parts:
            found = self._folders[number].get(part)
            if found is None:
                raise os_error(errno.ENOENT, path)
            if found not in self._folders:
                raise os_error(errno.ENOTDIR, path)
            number = found
        return number
