"""The head: how far readers beside the owner may go. Derived; never synced.

    offset  bytes  field
         0      4  magic "TMHD"
         4      1  version
         5      1  flags: bit 0 = pushes, bit 1 = takes may be shown before they are on disk
         8      8  place up to which everything may be shown
        16      8  epoch of the owner
        24      8  undone: how often this owner took back what it had written
        32     16  the boot of the machine in which it was written
        48      8  zero
        56      8  xxh3 of the 56 bytes before

The owner writes it when it opens, and when it begins a segment. From there on the spine of that
segment, which gets an entry after each sync, says how far readers may go (see `reach`); where it
cannot, the head is written instead. Nothing is written after an operation that need not be synced:
readers find such operations behind the head by themselves, since each of them is whole or not
there.

A head of another boot says nothing: power may have failed since, and took what was not on disk.
"""

from __future__ import annotations

import logging
import struct
from pathlib import Path
from typing import NamedTuple

import xxhash

from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.format.record import Kind
from tidemill.files.journal.scan import Found

logger = logging.getLogger(__name__)

NAME = "head"
MAGIC = b"TMHD"
VERSION = 2  # 1: the head alone said how far
BYTES = 64
_FIELDS = struct.Struct("<4sBBHQQQ16sQ")
_CHECK = struct.Struct("<Q")
_PUSHES = 1
_TAKES = 2
_TRIES = 16  # a read may fall into the middle of a write
_digest = xxhash.xxh3_64_intdigest


class Head(NamedTuple):
    """How far readers may go."""

    place: int
    epoch: int
    undone: int
    passes_pushes: bool
    passes_takes: bool

    @property
    def identity(self) -> tuple[int, int]:
        """While it stays the same, the journal only grows."""
        return self.epoch, self.undone

    def allows(self, operation: list[Found]) -> bool:
        """Whether readers may show an operation that is there, on disk or not."""
        last = operation[-1].envelope
        if last.place + last.total_bytes <= self.place:
            return True
        kinds = {found.envelope.kind for found in operation}
        if kinds == {Kind.STATE}:
            # A segment begins when what came before it may be shown.
            return True
        return (
            last.epoch == self.epoch
            and kinds <= {Kind.FRAME, Kind.CUT, Kind.MARK}
            and (self.passes_pushes or not kinds & {Kind.FRAME, Kind.MARK})
            and (self.passes_takes or Kind.CUT not in kinds)
        )


class HeadFile:
    """The head as its owner writes it."""

    def __init__(
        self, fs: FileSystem, folder: Path, *, epoch: int, passes_pushes: bool, passes_takes: bool
    ) -> None:
        self.path = folder / NAME
        self._epoch = epoch
        self._flags = _PUSHES * passes_pushes | _TAKES * passes_takes
        self._boot = fs.boot_id()
        self._undone = 0
        self._place = 0
        self._is_written = False
        try:
            self._file: File = fs.open(self.path, create=True)
        except FileExistsError:
            self._file = fs.open(self.path, write=True)

    def publish(self, place: int) -> None:
        """Let readers see everything up to `place`."""
        self._place = place
        fields = _FIELDS.pack(
            MAGIC, VERSION, self._flags, 0, place, self._epoch, self._undone, self._boot, 0
        )
        try:
            self._file.pwrite([fields + _CHECK.pack(_digest(fields))], 0)
            self._is_written = True
        except OSError as error:
            self._is_written = False
            # The operation itself is written; readers see it with the next one.
            logger.warning("readers of %s are behind: %s", self.path.parent, error)

    def note(self, place: int) -> None:
        """Readers know by the spine that they may see everything up to `place`, if they know by the
        head which spine that is.
        """
        self._place = place
        if not self._is_written:
            self.publish(place)

    def undo(self) -> None:
        """Let readers know that something behind the head was taken back."""
        self._undone += 1
        self.publish(self._place)

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            logger.warning("%s was not closed well: %s", self.path, error)


def read_head(fs: FileSystem, folder: Path) -> Head | None:
    """The head, or None if there is none that says anything."""
    for _ in range(_TRIES):
        try:
            file = fs.open(folder / NAME)
        except FileNotFoundError:
            return None
        try:
            data = file.pread(BYTES, 0)
        finally:
            file.close()
        if is_whole(data):
            magic, version, flags, _, place, epoch, undone, boot, _ = _FIELDS.unpack(data[:56])
            if (magic, version, boot) != (MAGIC, VERSION, fs.boot_id()):
                return None
            return Head(place, epoch, undone, bool(flags & _PUSHES), bool(flags & _TAKES))
    return None


def is_whole(data: bytes) -> bool:
    """Whether these are the bytes of a head, of whatever boot."""
    return len(data) == BYTES and _CHECK.unpack_from(data, 56)[0] == _digest(data[:56])
