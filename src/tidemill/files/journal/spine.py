"""The spine of the active segment: where each record lies, and how far the disk was safe.

It is derived, never synced, and gone once the segment has its summary. It serves when something is
damaged: it vouches for records behind one whose own length can no longer be read, and for what had
been promised. And it tells readers how far the owner has synced: see `head`.

One entry is 32 bytes: place, length, rows, synced, check. An entry of length 0 only moves `synced`.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import xxhash

from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.disk.storage import drop_file, storage_errors
from tidemill.files.format.record import split_place

logger = logging.getLogger(__name__)

_FIELDS = struct.Struct("<QIIQ")
_CHECK = struct.Struct("<Q")
ENTRY_BYTES = 32
_WAITING_MAX = 1024
_LAST_ENTRIES = 8  # that readers look at
_digest = xxhash.xxh3_64_intdigest


def spine_path(segment: Path) -> Path:
    """The spine of the segment that lies there."""
    return segment.with_suffix(".spine")


class SpineEntry(NamedTuple):
    place: int
    length: int  # of the whole record, padding included
    rows: int
    synced: int


class SpineFile:
    """The spine as its owner writes it. Where it cannot be written, it ends early: the records
    themselves are written, and only the help in finding damage is less.
    """

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self._path = Path()
        self._file: File | None = None
        self._end = 0
        self._waiting: list[tuple[int, int, int]] = []  # (place, bytes, rows) not yet written

    def begin(self, path: Path) -> None:
        """Start the spine of a segment; the one before ends."""
        self.close()
        self._path, self._end = path, 0
        self._waiting.clear()
        try:
            drop_file(self._fs, path)
            self._file = self._fs.open(path, create=True)
        except OSError as error:
            logger.warning("going on without the spine %s: %s", path, error)

    def note(self, records: Iterable[tuple[int, int, int]]) -> bool:
        """Take down records that were written, to be vouched for once they are synced; whether so
        many wait that they should be written, synced or not.
        """
        self._waiting += records
        return len(self._waiting) >= _WAITING_MAX

    def write(self, synced: int) -> None:
        """Write what was noted; the disk is safe up to `synced`."""
        self.put(self.pack(synced))

    def pack(self, synced: int) -> bytes:
        """What was noted, to be written once the disk is safe up to `synced`."""
        parts: list[bytes] = []
        for place, length, rows in self._waiting:
            fields = _FIELDS.pack(place, length, rows, synced)
            parts += (fields, _CHECK.pack(_digest(fields)))
        self._waiting.clear()
        return b"".join(parts)

    def put(self, entries: bytes) -> bool:
        """Write what was packed; whether there was something, and it is there."""
        if self._file is None or not entries:
            return False
        try:
            self._file.pwrite([entries], self._end)
        except OSError as error:
            logger.warning("the spine %s ends early: %s", self._path, error)
            self.close()
            return False
        self._end += len(entries)
        return True

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        file, self._file = self._file, None
        try:
            if file is not None:
                file.close()
        except OSError as error:
            logger.warning("the spine %s was not closed well: %s", self._path, error)


def unpack_entries(data: bytes) -> list[SpineEntry]:
    """The entries that are whole; damaged ones vouch for nothing and are left out."""
    found = []
    for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        fields = data[start : start + _FIELDS.size]
        if _CHECK.unpack_from(data, start + _FIELDS.size)[0] == _digest(fields):
            found.append(SpineEntry(*_FIELDS.unpack(fields)))
    return found


def read_synced(fs: FileSystem, path: Path) -> int | None:
    """How far the disk was safe by the last entries of a spine; None if it is not there, or says
    nothing.
    """
    try:
        file = fs.open(path)
    except FileNotFoundError:
        return None
    try:
        whole_bytes = file.size() // ENTRY_BYTES * ENTRY_BYTES
        # More than one, for the last may be being written.
        length = min(whole_bytes, _LAST_ENTRIES * ENTRY_BYTES)
        entries = unpack_entries(file.pread(length, whole_bytes - length))
    finally:
        file.close()
    return max([entry.synced for entry in entries], default=None)


def read_spine(fs: FileSystem, path: Path, segment: int) -> list[SpineEntry]:
    """The entries of a segment's spine; none if it is not there.

    A disk that fails to read it must not pass for that: what the spine vouches for, whoever goes on
    without it takes for a torn tail, or sets aside with the damage before it.
    """
    with storage_errors("reading", path):
        try:
            file = fs.open(path)
        except FileNotFoundError:
            return []
        try:
            entries = unpack_entries(file.pread(file.size(), 0))
        finally:
            file.close()
    return [entry for entry in entries if split_place(entry.place)[0] == segment]
