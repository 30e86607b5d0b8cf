"""Where an archive lives: objects by name, written whole. The port that folders and S3 fill.

An object is put under a name of its own and never changes, but for the one that everything hangs
on, which is replaced on condition that it is still the one that was read. Nothing here asks whether
a name is free before it writes: the store decides, in one step.

`Absent`, `Present` and `Changed` are answers, not failures; whoever called knows what to do about
them. All else that goes wrong is one of `tidemill.errors`:

- `Unavailable`: the store did not answer, or answered that it cannot now. A put may have taken
  effect all the same.
- `NoAccess`, `DiskFull`, `NotAnArchive`: it refused, and would again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa


class Absent(Exception):
    """There is no object of this name."""


class Present(Exception):
    """There is an object of this name already."""


class Changed(Exception):
    """The object is no longer the one that was to be replaced."""


class Stored(NamedTuple):
    """An object that was read, and the tag by which the store knows this state of it."""

    data: pa.Buffer
    tag: str


class ObjectStore(ABC):
    """Objects under one address. Every method may be called from any thread."""

    place: str  # what it is called in messages: a path, or a URL without credentials
    url: str  # by which it is opened again, from another folder as well

    def check_free(self) -> None:
        """Raise `InvalidInput` if something lives there that an archive must not be put into."""
        return

    @abstractmethod
    def get(self, name: str) -> Stored:
        """A whole object; raises `Absent`."""

    @abstractmethod
    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        """The bytes from `start` up to `end`, the latter not included; raises `Absent`. Fewer if
        the object is shorter.
        """

    @abstractmethod
    def put_new(self, name: str, data: pa.Buffer) -> str:
        """Store a new object durably, and return its tag; raises `Present`.

        Also if a try of this very call stored it, and the answer to that was lost.
        """

    def adopt(self, path: Path, name: str) -> None:
        """Store a file of this machine as a new object durably; the file may go afterwards."""
        with pa.OSFile(str(path)) as source:
            self.put_new(name, source.read_buffer())

    @abstractmethod
    def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
        """Store other data durably if the object still has this tag, and return the new one; raises
        `Changed` if it has not, or is not there.

        Also if a try of this very call replaced it, and the answer to that was lost.
        """

    @abstractmethod
    def names(self, folder: str, *, after: str = "") -> Iterator[str]:
        """The names that start with `folder` and a slash, in order, behind `after`.

        A store may leave out what was put a moment ago, and give what was just deleted.
        """

    @abstractmethod
    def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there do no harm."""
