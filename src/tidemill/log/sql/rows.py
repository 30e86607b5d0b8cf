"""Frames packed into rows of a shard, and back.

A row is what one append wrote: one frame behind the other, as in a journal. So an append of many
small sends is one row and one statement. Only what would not fit into one packet becomes several
rows, which one transaction writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tidemill.batch import HEADER_BYTES, LogBatch, SchemaVersions, unpack_header
from tidemill.errors import Corrupt, TooLarge
from tidemill.log.contract import LogFrame
from tidemill.log.frames import decode_rows, pack_frame_header


class PackedRow(NamedTuple):
    """One row to be written; the frames are in parts, so that nothing is copied before it must."""

    first: int
    last: int
    size: int
    parts: list[bytes | memoryview]


def pack_rows(
    frames: Sequence[LogFrame], first: int, time_us: int, *, bytes_max: int
) -> list[PackedRow]:
    """Frames with the numbers from `first` on, in as few rows as can be."""
    rows: list[PackedRow] = []
    for frame in frames:
        body = frame.body
        size = HEADER_BYTES + body.body_bytes
        last = first + body.rows - 1
        header = pack_frame_header(frame, first, time_us)
        parts: list[bytes | memoryview] = [header, memoryview(body.buffer)]
        if rows and rows[-1].size + size <= bytes_max:
            row = rows[-1]
            row.parts.extend(parts)
            rows[-1] = row._replace(last=last, size=row.size + size)
        else:
            rows.append(PackedRow(first, last, size, parts))
        first = last + 1
    return rows


def check_fit(rows: Sequence[PackedRow], bytes_max: int, setting: str) -> None:
    """Refuse rows that have become too large since they were packed: the server would end the
    connection, and it may go unheard why.

    >>> check_fit([PackedRow(1, 3, 100, [])], 50, "max_allowed_packet")
    Traceback (most recent call last):
    tidemill.errors.TooLarge: rows 1 to 3 take 100 bytes, and the server now takes 50: raise its \
max_allowed_packet
    """
    for row in rows:
        if row.size > bytes_max:
            raise TooLarge(
                f"rows {row.first} to {row.last} take {row.size} bytes, and the server now takes "
                f"{bytes_max}: raise its {setting}"
            )


def unpack_row(data: bytes, first: int, last: int, versions: SchemaVersions) -> list[LogBatch]:
    """The batches of a row, verified; anything but the rows `first` to `last` is `Corrupt`."""
    view = memoryview(data)
    batches = []
    at = 0
    while at < len(view):
        header = unpack_header(view, at)
        if header.first_seq != first:
            raise Corrupt(f"a frame starts with number {header.first_seq}, not {first}")
        at += HEADER_BYTES
        batches.append(decode_rows(header, view[at : at + header.body_bytes], versions))
        at += header.body_bytes
        first += header.rows
    if first != last + 1:
        raise Corrupt(f"its frames end with number {first - 1}, not {last}")
    return batches
