"""The bytes that are the same in every message of a schema, remembered to save parsing them again.

Between two messages of one schema by one writer only numbers differ: lengths, rows, nodes, buffers.
What lies between the numbers is the skeleton. A message with the very same bytes there has the very
same structure, so its numbers are found with one unpacking at known places; any other is parsed by
its own account (see `ipc`).

Invariant: a skeleton is made only from a message that we just wrote ourselves. One taken from
stored bytes could hide a part of its structure among its numbers.

    │ mark, length │ fixed │ body length │ fixed │ rows │ fixed │ buffers │ fixed │ nodes │ fixed │
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

_METADATA_BYTES_MAX = 64 * 1024  # above this, parsing is a small part of the work
_I64_BYTES = 8

Place = tuple[int, int]  # offset, and how many int64 are there


class MessageNumbers(NamedTuple):
    """What a record-batch message says about itself."""

    start: int  # of the buffers, behind the metadata
    body_bytes: int
    rows: int
    nodes: Sequence[int]  # length and null count of each
    buffers: Sequence[int]  # offset and length of each
    codec: int


class MessagePlaces(NamedTuple):
    """Where the numbers of a message are."""

    body_bytes: Place
    rows: Place
    nodes: Place
    buffers: Place


class Skeleton(NamedTuple):
    """How to read messages that have the same fixed bytes as the one it was made from."""

    layout: struct.Struct
    fixed_of: Callable[[Sequence[Any]], tuple[bytes, ...]]
    fixed: tuple[bytes, ...]
    body_bytes: int  # where the numbers are among those that `layout` unpacks
    rows: int
    nodes: slice
    buffers: slice
    blank: tuple[Any, ...]  # what `layout` packs, with the numbers of the message it was made from


def read_by_skeleton(data: memoryview, skeleton: Skeleton | None) -> MessageNumbers | None:
    """The numbers of an uncompressed message, None if it has another skeleton."""
    if skeleton is None or len(data) < skeleton.layout.size:
        return None
    layout, fixed_of, fixed, body_bytes, rows, nodes, buffers, _ = skeleton
    found = layout.unpack_from(data)
    if fixed_of(found) != fixed:
        return None
    return MessageNumbers(
        layout.size, found[body_bytes], found[rows], found[nodes], found[buffers], 0
    )


def write_by_skeleton(
    skeleton: Skeleton, body_bytes: int, rows: int, nodes: list[int], buffers: list[int]
) -> bytes:
    """The metadata of an uncompressed message with these numbers, as the writer of the skeleton has
    it.
    """
    values: list[Any] = list(skeleton.blank)
    values[skeleton.body_bytes] = body_bytes
    values[skeleton.rows] = rows
    values[skeleton.nodes] = nodes
    values[skeleton.buffers] = buffers
    return skeleton.layout.pack(*values)


def make_skeleton(data: memoryview, places: MessagePlaces) -> Skeleton | None:
    """The skeleton of an uncompressed message of our own; None if it is too large for that."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if end > _METADATA_BYTES_MAX:
        return None
    layout = ["<"]
    fixed_at, numbers_at = [], {}
    at = index = 0
    for offset, count in sorted(places):
        layout.append(f"{offset - at}s{count}q")
        fixed_at.append(index)
        numbers_at[offset] = index + 1
        index += 1 + count
        at = offset + count * _I64_BYTES
    fixed_at.append(index)
    layout.append(f"{end - at}s")
    unpacker = struct.Struct("".join(layout))
    fixed_of = itemgetter(*fixed_at)
    nodes, buffers = numbers_at[places.nodes[0]], numbers_at[places.buffers[0]]
    blank = unpacker.unpack_from(data)
    return Skeleton(
        unpacker,
        fixed_of,
        fixed_of(blank),
        numbers_at[places.body_bytes[0]],
        numbers_at[places.rows[0]],
        slice(nodes, nodes + places.nodes[1]),
        slice(buffers, buffers + places.buffers[1]),
        blank,
    )
