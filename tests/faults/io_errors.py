"""A disk that fails on purpose: the Nth call raises, once or from then on.

A dry run without a fault counts the calls; then every N is tried. A test must assert `fired`, or
it may have proved nothing.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import RLock
from typing import Literal, TypeVar

import pyarrow as pa

from tidemill.files.disk.filesystem import Buffer, File, FileSystem

Stickiness = Literal["once", "kind", "changes", "all"]
T = TypeVar("T")

CHANGES = frozenset(
    {
        "create",
        "scratch",
        "make_folder",
        "rename",
        "link",
        "unlink",
        "remove_folder",
        "sync_folder",
        "pwrite",
        "sync",
        "truncate",
        "allocate",
    }
)


class FailingFileSystem:
    """Another file system, one of whose calls fails with `error`.

    Kinds of calls: the names of the protocol's methods, and "create" for an `open` that creates.
    """

    def __init__(
        self,
        inner: FileSystem,
        *,
        # The number of the call to fail, from 1; None fails none and only counts.
        fail_at: int | None = None,
        error: int = errno.EIO,
        # What else fails afterwards: nothing, calls of the same kind, calls that change
        # something, everything but close.
        sticky: Stickiness = "once",
        # How many bytes a failing pwrite writes before it raises.
        partial_bytes: int = 0,
        # Only calls of these kinds count and fail; None: all of them.
        kinds: frozenset[str] | None = None,
    ) -> None:
        self.inner = inner
        self.calls = 0
        # What was called, for messages: the Nth call is log[N - 1].
        self.log: list[str] = []
        # How many calls were failed.
        self.fired = 0
        self.fired_kind: str | None = None
        self._fail_at = fail_at
        self._error = error
        self._sticky = sticky
        self._partial_bytes = partial_bytes
        self._kinds = kinds
        self._guard = RLock()
        self._next_kind: str | None = None

    def fail_next(self, kind: str) -> None:
        """Fail the next call of a kind, whatever its number."""
        self._next_kind = kind

    def fail_later(self, calls: int | None, *, sticky: Stickiness | None = None) -> None:
        """Fail the call that comes after so many less one; None: none."""
        self._fail_at = None if calls is None else self.calls + calls
        self._sticky = sticky or self._sticky

    def heal(self) -> None:
        """Fail no more calls."""
        self._fail_at = None
        self._sticky = "once"

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        kind = "create" if create else "open"
        return FailingFile(
            self,
            self.call(kind, path, lambda: self.inner.open(path, write=write, create=create)),
            path,
        )

    def scratch(self, folder: Path) -> File:
        return FailingFile(
            self, self.call("scratch", folder, lambda: self.inner.scratch(folder)), folder
        )

    def make_folder(self, path: Path) -> None:
        self.call("make_folder", path, lambda: self.inner.make_folder(path))

    def list_folder(self, path: Path) -> list[str]:
        return self.call("list_folder", path, lambda: self.inner.list_folder(path))

    def rename(self, source: Path, target: Path) -> None:
        self.call("rename", source, lambda: self.inner.rename(source, target))

    def link(self, source: Path, target: Path) -> None:
        self.call("link", source, lambda: self.inner.link(source, target))

    def unlink(self, path: Path) -> None:
        self.call("unlink", path, lambda: self.inner.unlink(path))

    def remove_folder(self, path: Path) -> None:
        self.call("remove_folder", path, lambda: self.inner.remove_folder(path))

    def boot_id(self) -> bytes:
        return self.inner.boot_id()

    def sync_folder(self, path: Path) -> None:
        self.call("sync_folder", path, lambda: self.inner.sync_folder(path))

    def call(
        self,
        kind: str,
        path: Path,
        work: Callable[[], T],
        partial: Callable[[int], None] | None = None,
    ) -> T:
        """Count a call and do it, or fail it, after `partial` of it was done."""
        if not self._fails(kind, path):
            return work()
        if partial is not None:
            partial(self._partial_bytes)
        raise OSError(self._error, f"{os.strerror(self._error)} (injected into {kind})", str(path))

    def _fails(self, kind: str, path: Path) -> bool:
        with self._guard:
            if self._kinds is not None and kind not in self._kinds:
                return False
            self.calls += 1
            self.log.append(f"{kind} {path}")
            fails = self.calls == self._fail_at or (self.fired > 0 and self._sticks(kind))
            if kind == self._next_kind:
                fails, self._next_kind = True, None
            if fails:
                self.fired += 1
                self.fired_kind = self.fired_kind or kind
            return fails

    def _sticks(self, kind: str) -> bool:
        match self._sticky:
            case "once":
                return False
            case "kind":
                return kind == self.fired_kind
            case "changes":
                return kind in CHANGES
            case "all":
                return kind != "close"


class FailingFile:
    """An open file of a `FailingFileSystem`."""

    __slots__ = ("_inner", "_owner", "_path")

    def __init__(self, owner: FailingFileSystem, inner: File, path: Path) -> None:
        self._owner = owner
        self._inner = inner
        self._path = path

    def pread(self, length: int, offset: int) -> bytes:
        return self._owner.call("pread", self._path, lambda: self._inner.pread(length, offset))

    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        return self._owner.call(
            "pread", self._path, lambda: self._inner.pread_buffers(lengths, offset)
        )

    def pwrite(self, parts: Sequence[Buffer], offset: int) -> None:
        def partial(count: int) -> None:
            if count:
                data = b"".join(parts)  # type: ignore[arg-type]
                # At least one byte is missing, or the write did not fail.
                self._inner.pwrite([data[: min(count, len(data) - 1)]], offset)

        self._owner.call("pwrite", self._path, lambda: self._inner.pwrite(parts, offset), partial)

    def sync(self) -> None:
        def partial(_: int) -> None:
            # The kernel forgets what it could not write; a file system that models this is told.
            forget = getattr(self._inner, "sync_failed", None)
            if forget is not None:
                forget()

        self._owner.call("sync", self._path, self._inner.sync, partial)

    def write_out(self, length: int, offset: int) -> None:
        self._owner.call("write_out", self._path, lambda: self._inner.write_out(length, offset))

    def size(self) -> int:
        return self._owner.call("size", self._path, self._inner.size)

    def links(self) -> int:
        return self._owner.call("links", self._path, self._inner.links)

    def truncate(self, length: int) -> None:
        self._owner.call("truncate", self._path, lambda: self._inner.truncate(length))

    def allocate(self, length: int) -> None:
        self._owner.call("allocate", self._path, lambda: self._inner.allocate(length))

    def lock(self) -> bool:
        return self._owner.call("lock", self._path, self._inner.lock)

    def close(self) -> None:
        # A close that fails has closed all the same.
        self._owner.call("close", self._path, self._inner.close, lambda _: self._inner.close())
