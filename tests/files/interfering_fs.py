"""The real file system, with somebody else who acts between two looks at it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tidemill.files.disk.filesystem import File, LocalFile, LocalFileSystem


class InterferingFileSystem(LocalFileSystem):
    """Calls `act` once, before the look with the number `at`, counted from 1."""

    def __init__(self, at: int, act: Callable[[], object]) -> None:
        self.looks = 0
        self._at = at
        self._act = act

    def look(self) -> None:
        self.looks += 1
        if self.looks == self._at:
            self._act()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        self.look()
        inner = super().open(path, write=write, create=create)
        assert isinstance(inner, LocalFile)
        fd, inner._fd = inner._fd, -1
        return _File(fd, self)

    def list_folder(self, path: Path) -> list[str]:
        self.look()
        return super().list_folder(path)


class _File(LocalFile):
    __slots__ = ("_looked_at_through",)

    def __init__(self, fd: int, looked_at_through: InterferingFileSystem) -> None:
        super().__init__(fd)
        self._looked_at_through = looked_at_through

    def pread(self, length: int, offset: int) -> bytes:
        self._looked_at_through.look()
        return super().pread(length, offset)

    def size(self) -> int:
        self._looked_at_through.look()
        return super().size()
