"""What was done to a disk: contents, images, and the trace of operations that crash states are
derived from.

A name and what it names are separate durable things, as on a real disk: a trace speaks of inodes,
and an operation on names puts or removes one entry of one folder. Paths in operations are for
people only.

Invariant: nothing here is changed after it was made, so images share their contents freely and
cost little.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import NamedTuple, TypeAlias

ROOT = 1


class Content(NamedTuple):
    """The bytes of a file: `data`, then zeroes up to `size`. A preallocated segment costs only
    what it holds.
    """

    data: bytes
    size: int

    def whole(self) -> bytes:
        return self.data + bytes(self.size - len(self.data))


EMPTY = Content(b"", 0)


@dataclass(frozen=True, slots=True)
class Image:
    """A whole disk at rest: the entries of each folder by inode, and the content of each file by
    inode.
    """

    folders: Mapping[int, Mapping[str, int]] = field(default_factory=lambda: {ROOT: {}})
    contents: Mapping[int, Content] = field(default_factory=dict)

    def files(self) -> dict[str, int]:
        """The inode of each file by its path, in the order of paths."""
        found: dict[str, int] = {}
        pending = [("", ROOT)]
        while pending:
            prefix, folder = pending.pop()
            for name, inode in self.folders[folder].items():
                path = f"{prefix}/{name}"
                if inode in self.folders:
                    pending.append((path, inode))
                else:
                    found[path] = inode
        return dict(sorted(found.items()))

    def replaced(self, inode: int, content: Content) -> Image:
        """The same disk, but for the content of one file."""
        return Image(self.folders, {**self.contents, inode: content})


class Entry(NamedTuple):
    """A name in a folder, and the inode it stands for."""

    folder: int
    name: str
    inode: int


@dataclass(frozen=True, slots=True)
class Write:
    """`data` written at `offset`."""

    inode: int
    offset: int
    data: bytes
    path: PurePath

    def __str__(self) -> str:
        return f"write {self.path} [{self.offset}, {self.offset + len(self.data)})"


@dataclass(frozen=True, slots=True)
class Truncate:
    """The size set to `length`."""

    inode: int
    length: int
    path: PurePath

    def __str__(self) -> str:
        return f"truncate {self.path} to {self.length}"


@dataclass(frozen=True, slots=True)
class Allocate:
    """The file grown to `length` bytes with zeroes."""

    inode: int
    length: int
    path: PurePath

    def __str__(self) -> str:
        return f"allocate {self.path} to {self.length}"


@dataclass(frozen=True, slots=True)
class Sync:
    """A file synced, or not: after a failed sync the kernel calls the pages clean, and no later
    sync writes them.
    """

    inode: int
    path: PurePath
    failed: bool = False

    def __str__(self) -> str:
        return f"{'failed ' if self.failed else ''}sync {self.path}"


@dataclass(frozen=True, slots=True)
class NameChange:
    """A change of names: creating and making folders only put, unlinking only removes, renaming
    does both.
    """

    kind: str
    put: Entry | None
    removed: Entry | None
    path: PurePath
    # What a new inode is; None where the inode is an old one.
    makes: str | None = None

    def __str__(self) -> str:
        return f"{self.kind} {self.path}" + (
            f" to {self.put.name}" if self.removed and self.put else ""
        )


@dataclass(frozen=True, slots=True)
class SyncFolder:
    """The names in a folder made to last."""

    inode: int
    path: PurePath

    def __str__(self) -> str:
        return f"sync_folder {self.path}"


@dataclass(frozen=True, slots=True)
class Mark:
    """A note of the test: what it attempted or was promised by then."""

    label: str
    payload: object
    # A promise allows fewer states than before, so all must be judged again; an attempt only
    # allows more.
    promise: bool

    def __str__(self) -> str:
        return f"mark {self.label} {self.payload!r}"


DataOperation: TypeAlias = Write | Truncate | Allocate
Operation: TypeAlias = DataOperation | Sync | NameChange | SyncFolder | Mark


@dataclass(slots=True)
class Trace:
    """A disk at rest, and every operation since, in order."""

    initial: Image = field(default_factory=Image)
    operations: list[Operation] = field(default_factory=list)
