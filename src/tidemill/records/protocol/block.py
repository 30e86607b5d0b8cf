"""A buffer record: consecutive entries of one block, and the mark of who wrote it last.

    0  magic "TMRB" · version u16 · unused u16 · ring 8 bytes
    16 block i64 · first offset i64 · mark i64 · entries u32 · unused u32
    48 lengths, u32 each · kinds, u8 each · the entries' bytes, one after the other
       xxh3 of all of it u64

The mark is the token of the last write. A write needs the generation of the record that it read,
and another look at the lock where the mark is not below its token, or where there are entries
behind its tail: whoever lost the lock can write over nothing that was written since.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import accumulate, pairwise

from xxhash import xxh3_64_intdigest

from tidemill.errors import Corrupt, UnknownFormat

MAGIC = b"TMRB"
VERSION = 1

_HEADER = struct.Struct("<4sHH8sqqqII")
_CHECK = struct.Struct("<Q")

BLOCK_BYTES = _HEADER.size + _CHECK.size  # of a record without entries
SLOT_BYTES = 5  # of an entry, beside its own


@dataclass(frozen=True, slots=True)
class Block:
    """Entries `first`, `first` + 1 … of one block of a ring."""

    ring: bytes
    number: int
    first: int
    mark: int
    kinds: bytes
    values: list[bytes]  # never changed

    @property
    def end(self) -> int:
        """The offset behind the last entry."""
        return self.first + len(self.values)

    def encode(self) -> bytes:
        """The bytes of the record."""
        values = self.values
        count = len(values)
        parts = (
            _HEADER.pack(
                MAGIC, VERSION, 0, self.ring, self.number, self.first, self.mark, count, 0
            ),
            struct.pack(f"<{count}I", *map(len, values)),
            self.kinds,
            *values,
        )
        body = b"".join(parts)
        return body + _CHECK.pack(xxh3_64_intdigest(body))


def decode_block(data: bytes) -> Block:
    """The block of a record; `Corrupt` or `UnknownFormat` if it is none.

    >>> block = Block(b"ringring", 0, 3, 7, bytes(2), [b"a", b"bc"])
    >>> decode_block(block.encode()) == block
    True
    >>> decode_block(block.encode()[:-1])
    Traceback (most recent call last):
    tidemill.errors.Corrupt: the checksum of a buffer record is wrong
    """
    if len(data) < BLOCK_BYTES or data[:4] != MAGIC:
        raise Corrupt("a buffer record does not look like one")
    body = data[: -_CHECK.size]
    if _CHECK.unpack_from(data, len(body))[0] != xxh3_64_intdigest(body):
        raise Corrupt("the checksum of a buffer record is wrong")
    _, version, _, ring, number, first, mark, count, _ = _HEADER.unpack_from(body)
    if version != VERSION:
        raise UnknownFormat(f"a buffer record has version {version}, and {VERSION} is known")
    start = _HEADER.size + SLOT_BYTES * count
    if start > len(body):
        raise Corrupt(f"a buffer record claims {count} entries, more than it has room for")
    lengths = struct.unpack_from(f"<{count}I", body, _HEADER.size)
    if start + sum(lengths) != len(body):
        raise Corrupt("the entries of a buffer record do not fill it")
    kinds = body[start - count : start]
    bounds = accumulate(lengths, initial=start)
    values = [body[begin:end] for begin, end in pairwise(bounds)]
    return Block(ring, number, first, mark, kinds, values)
