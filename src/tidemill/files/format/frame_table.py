"""The index entries of a segment: one row of 64 bytes for each frame, as a NumPy table."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

ENTRY = np.dtype(
    [
        ("bucket", "<i8"),
        ("key_min", "<i8"),
        ("key_max", "<i8"),
        ("seq_min", "<i8"),
        ("seq_max", "<i8"),
        ("check", "<u8"),  # of the frame's header: proves that the bytes read are the ones indexed
        ("offset", "<u4"),  # of the record in its segment
        ("length", "<u4"),  # of the record's payload
        ("rows", "<u4"),
        ("audience", "<u4"),
    ]
)

_ROW = struct.Struct("<qqqqqQIIII")

Entries: TypeAlias = NDArray[np.void]


def buckets_of(rows: Entries) -> list[int]:
    """The buckets that occur in a table, or in a directory, ascending."""
    # NumPy's own way imports its masked arrays: 9 MB, and more time than all of opening.
    return sorted(set(rows["bucket"].tolist()))


class Entry(NamedTuple):
    """One row of the table, with the segment it belongs to."""

    segment: int
    bucket: int
    key_min: int
    key_max: int
    seq_min: int
    seq_max: int
    check: int
    offset: int
    length: int
    rows: int
    audience: int

    @property
    def place(self) -> int:
        return self.segment << 32 | self.offset

    @property
    def keys(self) -> tuple[int, int]:
        return self.key_min, self.key_max

    @property
    def seqs(self) -> tuple[int, int]:
        return self.seq_min, self.seq_max


class FrameList:
    """Frames of one or several segments, as columns."""

    __slots__ = ("rows", "segments")

    def __init__(self, rows: Entries, segments: NDArray[np.int64]) -> None:
        self.rows = rows
        self.segments = segments

    @classmethod
    def of(cls, parts: list[tuple[int, Entries]]) -> FrameList:
        """The frames of several segments together; a part is (number of the segment, its rows)."""
        rows = np.concatenate([rows for _, rows in parts]) if parts else np.empty(0, ENTRY)
        lengths = [len(rows) for _, rows in parts]
        numbers = np.array([number for number, _ in parts], np.int64)
        return cls(rows, np.repeat(numbers, lengths))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Entry:
        return Entry(int(self.segments[index]), *self.rows[index].item())

    def __iter__(self) -> Iterator[Entry]:
        for start in range(0, len(self.rows), 1024):
            rows = self.rows[start : start + 1024].tolist()
            for segment, row in zip(
                self.segments[start : start + 1024].tolist(), rows, strict=True
            ):
                yield Entry(segment, *row)

    @property
    def places(self) -> NDArray[np.int64]:
        return self.segments << 32 | self.rows["offset"]

    def part(self, start: int, stop: int) -> FrameList:
        return FrameList(self.rows[start:stop], self.segments[start:stop])

    def at(self, indexes: list[int] | NDArray[np.int64]) -> FrameList:
        return FrameList(self.rows[indexes], self.segments[indexes])

    def where(self, mask: NDArray[np.bool_]) -> FrameList:
        return FrameList(self.rows[mask], self.segments[mask])

    def without(self, places: Collection[int]) -> FrameList:
        """Those at other places."""
        return self.where(~np.isin(self.places, np.array(list(places), np.int64)))

    def sorted_by_key(self) -> FrameList:
        """By least key, then least seq."""
        order = np.lexsort((self.rows["seq_min"], self.rows["key_min"]))
        return FrameList(self.rows[order], self.segments[order])


class FrameTable:
    """A table that grows; appending is cheap and never moves what a reader holds."""

    __slots__ = ("_buffer", "_capacity", "_count")

    def __init__(self) -> None:
        self._capacity = 64
        self._buffer = bytearray(self._capacity * _ROW.size)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def rows(self) -> Entries:
        return np.frombuffer(self._buffer, ENTRY, self._count)

    def append(self, entry: Entry) -> None:
        if self._count == self._capacity:
            # A new buffer, because the old one cannot grow while somebody looks at it.
            self._buffer = self._buffer + bytes(len(self._buffer))
            self._capacity *= 2
        _ROW.pack_into(self._buffer, self._count * _ROW.size, *entry[1:])
        self._count += 1
