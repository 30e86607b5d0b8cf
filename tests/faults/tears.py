"""How a write that was not synced may be torn: which of its bytes reach the disk.

Disks write sectors of 512 bytes in any order, so a large write may leave a prefix, a suffix, or
single sectors missing. Tears at multiples of 64 (where records may begin) and at single bytes are
finer than disks are, on purpose: the format must not lean on the sector.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.faults.trace import Write

SECTOR = 512
EDGE = 64
# Above these, only the first and last sectors of a write are cut at each edge, and only prefixes
# and suffixes by sector are tried.
EDGES_MAX = 128
SECTORS_MAX = 16


class Tear(NamedTuple):
    """Bytes of the file that reach the disk (`start` to `end`), or with `inverse` all of the
    write but those.

    `grows` tells whether the file has its new size although bytes at its end are lost.
    """

    start: int
    end: int
    inverse: bool = False
    grows: bool = False

    def __str__(self) -> str:
        sign = "-" if self.inverse else "+"
        return f"{sign}{self.start}-{self.end}{'g' if self.grows else ''}"

    @classmethod
    def parse(cls, text: str) -> Tear:
        start, end = text[1:].removesuffix("g").split("-")
        return cls(int(start), int(end), text[0] == "-", text.endswith("g"))

    def writes(self, write: Write) -> list[tuple[int, bytes]]:
        """The parts of the write that reach the disk."""
        base, data = write.offset, write.data
        if self.inverse:
            parts = [(base, data[: self.start - base]), (self.end, data[self.end - base :])]
        else:
            parts = [(self.start, data[self.start - base : self.end - base])]
        return [(offset, part) for offset, part in parts if part]


class TearAt(NamedTuple):
    """A tear, and the bit of the unit it happens to."""

    unit: int
    tear: Tear


def tears_of(write: Write, *, every_byte: bool) -> Iterator[Tear]:
    """The ways in which a write may be torn; whole and absent are not among them."""
    start, end = write.offset, write.offset + len(write.data)
    # The size lasts but none of the bytes.
    yield Tear(start, start, grows=True)
    for cut in _cuts(start, end, every_byte):
        yield Tear(start, cut)
    sectors = list(range(start - start % SECTOR + SECTOR, end, SECTOR))
    for cut in sectors:
        yield Tear(cut, end)
    bounds = [start, *sectors, end]
    if 2 < len(bounds) <= SECTORS_MAX + 1:
        for low, high in pairwise(bounds):
            yield Tear(low, high, inverse=True, grows=True)
            if len(bounds) > 3:
                yield Tear(low, high, grows=True)


def _cuts(start: int, end: int, every_byte: bool) -> Iterator[int]:
    if every_byte:
        yield from range(start + 1, end)
        return
    edges = range(start - start % EDGE + EDGE, end, EDGE)
    if len(edges) <= EDGES_MAX:
        yield from edges
        return
    near = SECTOR * 2
    for cut in edges:
        if cut % SECTOR == 0 or cut < start + near or cut > end - near:
            yield cut
