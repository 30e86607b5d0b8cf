"""The spine of the active segment: where each record lies, and how far the disk was safe.

It is derived, never synced, and gone once the segment has its summary. It serves when something is
damaged: it vouches for records behind one whose own length can no longer be read, and for what had
been promised.

One entry is 32 bytes: place, length, rows, synced, check. An entry of length 0 only moves `synced`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import xxhash

from tidemill.files.filesystem import FileSystem
from tidemill.files.record import split_place
from tidemill.files.storage import storage_errors

_FIELDS = struct.Struct("<QIIQ")
_CHECK = struct.Struct("<Q")
ENTRY_BYTES = 32
_digest = xxhash.xxh3_64_intdigest


class SpineEntry(NamedTuple):
    place: int
    length: int  # of the whole record, padding included
    rows: int
    synced: int


def pack_entries(entries: Iterable[tuple[int, int, int, int]]) -> bytes:
    packed = [_FIELDS.pack(*entry) for entry in entries]
    return b"".join([fields + _CHECK.pack(_digest(fields)) for fields in packed])


def unpack_entries(data: bytes) -> list[SpineEntry]:
    """The entries that are whole; damaged ones vouch for nothing and are left out."""
    found = []
    for start in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
        fields = data[start : start + _FIELDS.size]
        if _CHECK.unpack_from(data, start + _FIELDS.size)[0] == _digest(fields):
            found.append(SpineEntry(*_FIELDS.unpack(fields)))
    return found


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
