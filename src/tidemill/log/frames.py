"""Frames of a log as bytes: the same wherever they rest or travel.

The body holds the payload's columns alone. The header says which numbers the rows have, when they
were written and in which schema version; its keys are 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tidemill.batch import (
    HEADER_BYTES,
    EncodedBody,
    FrameHeader,
    LogBatch,
    SchemaVersions,
    decode_body,
    encode_body,
    pack_header,
    project,
    unpack_header,
)
from tidemill.errors import Corrupt, MissingRows, TooLarge
from tidemill.log.contract import LogFrame


def encode_rows(
    payload: pa.RecordBatch, fingerprint: int, *, bytes_max: int, setting: str = ""
) -> list[LogFrame]:
    """Rows as few frames as can be with bodies of at most `bytes_max` bytes each.

    One row that is larger by itself is `TooLarge`; `setting` says what could be changed about it.

    >>> payload = pa.record_batch({"value": [bytes(1000)] * 10})
    >>> [frame.body.rows for frame in encode_rows(payload, 0, bytes_max=6_000)]
    [5, 5]
    """
    size = payload.nbytes
    if size <= bytes_max:
        body = encode_body(payload)
        if body.body_bytes <= bytes_max:
            return [LogFrame(body, fingerprint)]
        size = body.body_bytes
    if payload.num_rows == 1:
        hint = f"; {setting}" if setting else ""
        raise TooLarge(f"one row holds {size} bytes, here it may hold {bytes_max}{hint}")
    # Whatever the rows weigh, each part is smaller than the whole, so that this comes to an end.
    parts = min(max(2, -(-size // bytes_max)), payload.num_rows)
    step = -(-payload.num_rows // parts)
    frames = []
    for start in range(0, payload.num_rows, step):
        part = payload.slice(start, step)
        frames += encode_rows(part, fingerprint, bytes_max=bytes_max, setting=setting)
    return frames


def pack_frame_header(frame: LogFrame, first_seq: int, time_us: int) -> bytes:
    """The header that goes in front of a frame's body, once its numbers are known."""
    body: EncodedBody = frame.body
    return pack_header(
        body.rows,
        first_seq,
        0,
        0,
        time_us,
        frame.fingerprint,
        body.body_bytes,
        body.check,
        body.codec,
    )


def decode_frame(data: bytes | memoryview | pa.Buffer, versions: SchemaVersions) -> LogBatch:
    """The rows of a whole frame, verified through and through, in the newest schema version.

    >>> versions = SchemaVersions([pa.schema([("value", pa.binary())])])
    >>> payload = pa.record_batch({"value": pa.array([b"a", b"b"])})
    >>> (frame,) = encode_rows(payload, versions.newest_fingerprint, bytes_max=10**6)
    >>> decode_frame(pack_frame_header(frame, 7, 0) + bytes(frame.body.buffer), versions)
    <LogBatch of 2 rows, 7 to 8, columns value>
    """
    view = memoryview(data)
    header = unpack_header(view)
    return decode_rows(header, view[HEADER_BYTES:], versions)


def decode_rows(header: FrameHeader, body: memoryview, versions: SchemaVersions) -> LogBatch:
    """The rows of a frame whose header is known."""
    if header.carried or header.first_seq < 1:
        raise Corrupt("the frame is not one of a log: its rows have no numbers in its header")
    payload = decode_body(header, body, versions.by_fingerprint(header.fingerprint))
    if header.fingerprint != versions.newest_fingerprint:
        payload = project(payload, versions.newest)
    return LogBatch(payload, header.first_seq, header.time_us)


def from_seq(batches: Sequence[LogBatch], start: int) -> list[LogBatch]:
    """The rows from `start` on of batches that follow one another; `MissingRows` if they do not.

    >>> one, three = LogBatch.of([b"a", b"b"]), LogBatch.of([b"d"], first_seq=4)
    >>> from_seq([one], 2)
    [<LogBatch of 1 row, 2 to 2, columns value>]
    >>> from_seq([one, three], 1)
    Traceback (most recent call last):
    tidemill.errors.MissingRows: row 3 should be there and is not
    """
    found = []
    for batch in batches:
        if batch.next_seq <= start:
            continue
        if batch.first_seq > start:
            raise missing(start, batch.first_seq - 1)
        found.append(batch if batch.first_seq == start else batch.slice(start - batch.first_seq))
        start = batch.next_seq
    return found


def missing(first: int, last: int, hint: str = "") -> MissingRows:
    """The error for rows that should be there and are not; `hint` says where to look further."""
    rows = f"row {first}" if first == last else f"rows {first} to {last}"
    be = "is" if first == last else "are"
    hint = f"; {hint}" if hint else ""
    return MissingRows(f"{rows} should be there and {be} not{hint}", first=first, last=last)
