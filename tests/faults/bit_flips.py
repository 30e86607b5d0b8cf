"""Damage to data at rest: each bit of each file flipped, files cut short, blocks swapped or
wiped.

Each damage is yielded with words that say where it is, as an image of the whole disk:
`MemoryFileSystem(damage.image)`. Images share all contents but the damaged one, so that each
costs one copy of one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Content, Image


@dataclass(frozen=True, slots=True)
class Damage:
    """One damaged disk."""

    path: str
    # Where the damage begins.
    offset: int
    words: str
    image: Image

    def file_system(self) -> MemoryFileSystem:
        return MemoryFileSystem(self.image)


def _any(_: str) -> bool:
    return True


def flipped_bits(
    image: Image, *, tail_bytes: int = 128, chosen: Callable[[str], bool] = _any
) -> Iterator[Damage]:
    """Every bit of every chosen file, flipped alone.

    Of the zeroes behind the data of a preallocated file, `tail_bytes` are flipped too, and the
    very last byte.
    """
    for path, inode in image.files().items():
        if not chosen(path):
            continue
        content = image.contents[inode]
        near = min(content.size, len(content.data) + tail_bytes)
        places = [*range(near), *([content.size - 1] if near < content.size else [])]
        for offset in places:
            for bit in range(8):
                data = bytearray(content.data)
                if offset >= len(data):
                    data.extend(bytes(offset + 1 - len(data)))
                data[offset] ^= 1 << bit
                damaged = Content(bytes(data), content.size)
                yield Damage(
                    path,
                    offset,
                    f"bit {bit} of byte {offset} of {path} flipped",
                    image.replaced(inode, damaged),
                )


def truncations(
    image: Image, *, step: int = 1, chosen: Callable[[str], bool] = _any
) -> Iterator[Damage]:
    """Every chosen file cut short at each multiple of `step` within its data, and at the end of
    its data.
    """
    for path, inode in image.files().items():
        if not chosen(path):
            continue
        content = image.contents[inode]
        lengths = sorted({*range(0, len(content.data), step), len(content.data)})
        for length in lengths:
            if length < content.size:
                cut = Content(content.data[:length].rstrip(b"\0"), length)
                yield Damage(
                    path, length, f"{path} cut to {length} bytes", image.replaced(inode, cut)
                )


def swapped_blocks(
    image: Image, *, block: int = 512, chosen: Callable[[str], bool] = _any
) -> Iterator[Damage]:
    """Every two different blocks of a chosen file in each other's place, as misdirected writes
    leave them.
    """
    for path, inode in image.files().items():
        if not chosen(path):
            continue
        content = image.contents[inode]
        padded = content.data + bytes(-len(content.data) % block)
        blocks = [padded[at : at + block] for at in range(0, len(padded), block)]
        for one, other in combinations(range(len(blocks)), 2):
            if blocks[one] != blocks[other]:
                swapped = list(blocks)
                swapped[one], swapped[other] = blocks[other], blocks[one]
                yield Damage(
                    path,
                    one * block,
                    f"blocks {one} and {other} of {path} swapped",
                    image.replaced(inode, _fitted(b"".join(swapped), content.size)),
                )


def wiped_blocks(
    image: Image, *, block: int = 512, chosen: Callable[[str], bool] = _any
) -> Iterator[Damage]:
    """Every block of a chosen file turned to zeroes, as a lost write leaves it."""
    for path, inode in image.files().items():
        if not chosen(path):
            continue
        content = image.contents[inode]
        for start in range(0, len(content.data), block):
            end = min(start + block, len(content.data))
            if any(content.data[start:end]):
                data = content.data[:start] + bytes(end - start) + content.data[end:]
                yield Damage(
                    path,
                    start,
                    f"bytes {start} to {end} of {path} wiped",
                    image.replaced(inode, _fitted(data, content.size)),
                )


def _fitted(data: bytes, size: int) -> Content:
    return Content(data.rstrip(b"\0")[:size], size)
