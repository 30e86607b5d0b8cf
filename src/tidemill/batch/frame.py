"""A batch as the body of a frame, and back.

The body is one Arrow IPC record-batch message: no schema (the folder keeps that), no seq and no
time unless the frame is carried (the header holds them, so that numbers can be given at commit,
when the body is long encoded). Encoding the body and packing the header are therefore two steps.

Decoding trusts nothing: length, checksum, the message's own claims (see `ipc`), Arrow's reader,
then full validation. Whatever the bytes are, the outcome is a valid batch or `Corrupt`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tidemill.batch.header import (
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_ZSTD,
    HEADER_BYTES,
    FrameHeader,
    unpack_known,
)
from tidemill.batch.ipc import check_message, decompressed_bytes_max
from tidemill.batch.ready import int64_values
from tidemill.errors import Corrupt, InvalidInput, TooLarge
from tidemill.limits import FRAME_BODY_BYTES_MAX, FRAME_METADATA_BYTES_MAX, TIME_US_MAX
from tidemill.shown import shown

KEY_FIELD = pa.field("key", pa.int64(), nullable=False)
SEQ_FIELD = pa.field("seq", pa.int64(), nullable=False)
TIME_FIELD = pa.field("time", pa.timestamp("us", tz="UTC"), nullable=False)

_CODECS = {None: CODEC_NONE, "lz4": CODEC_LZ4, "zstd": CODEC_ZSTD}
_INT64 = pa.int64()
_PREFIX_BYTES = 8  # of an Arrow message: the continuation mark and the length of the metadata

_read = pa.ipc.read_record_batch


class EncodedBody(NamedTuple):
    """The body of a frame, ready to be written, with what its header needs to know of it.

    >>> body = encode_body(pa.record_batch({"key": pa.array([1, 2])}))
    >>> body.rows, body.codec, body.body_bytes == len(body.buffer)
    (2, 0, True)
    """

    buffer: pa.Buffer | bytes
    body_bytes: int
    check: int
    codec: int
    rows: int


def encode_body(batch: pa.RecordBatch, codec: str | None = None) -> EncodedBody:
    """Encode a batch in a body schema; `codec` is None, "lz4" or "zstd".

    A batch so regular that a decoder would take its compressed form for a bomb is stored as it is.

    >>> encode_body(pa.record_batch({"key": pa.array([1, 2])}), codec="zstd").codec
    2
    """
    code = CODEC_NONE
    if codec is None:
        buffer = batch.serialize()
    else:
        if codec not in _CODECS:
            raise InvalidInput(f"unknown codec {shown(codec)}: use 'lz4', 'zstd' or None")
        buffer = _compress(batch, codec)
        # The serialized form is an upper bound of what the compressed buffers claim.
        if pa.ipc.get_record_batch_size(batch) > decompressed_bytes_max(len(buffer)):
            buffer = batch.serialize()
        else:
            code = _CODECS[codec]
    if len(buffer) > FRAME_BODY_BYTES_MAX:
        raise TooLarge(
            f"a frame holds at most {FRAME_BODY_BYTES_MAX} bytes, this batch needs {len(buffer)}: "
            "push in parts"
        )
    if len(buffer) > FRAME_METADATA_BYTES_MAX:
        _check_metadata(buffer)
    return EncodedBody(buffer, len(buffer), xxh3_64_intdigest(buffer), code, batch.num_rows)


def _check_metadata(buffer: pa.Buffer) -> None:
    """Refuse what no reader would believe: columns take some bytes each, whatever they hold."""
    size = int.from_bytes(buffer[4:_PREFIX_BYTES].to_pybytes(), "little")
    if size > FRAME_METADATA_BYTES_MAX:
        raise TooLarge(
            f"the columns of a frame take at most {FRAME_METADATA_BYTES_MAX} bytes to describe, "
            f"these take {size}, nested ones included: use fewer"
        )


def _compress(batch: pa.RecordBatch, codec: str) -> pa.Buffer:
    """The message cut out of a stream, because only streams can compress."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    writer = pa.ipc.new_stream(sink, batch.schema, options=options)
    schema_bytes = sink.tell()
    writer.write_batch(batch)
    stream = sink.getvalue()
    if schema_bytes == 0:
        # The schema came with the batch. Its message has no body: prefix and metadata are all.
        schema_bytes = _PREFIX_BYTES + int.from_bytes(stream[4:8], "little")
    return stream.slice(schema_bytes)


def decode_body(
    header: FrameHeader, body: bytes | memoryview | pa.Buffer, schema: pa.Schema
) -> pa.RecordBatch:
    """Decode and fully verify the body of a frame; `schema` is the body's, from `body_schema`.

    The batch shares its memory with `body`, which must not change afterwards. Pass the same schema
    object each time: what is known of it is remembered by identity.

    >>> from tidemill.batch.header import pack_header, unpack_header
    >>> schema = body_schema(pa.schema([("value", pa.binary())]), carried=False)
    >>> batch = pa.record_batch([pa.array([1]), pa.array([b"a"])], schema=schema)
    >>> body = encode_body(batch)
    >>> header = unpack_header(pack_header(rows=1, first_seq=1, key_min=1, key_max=1, time_us=0,
    ...     fingerprint=0, body_bytes=body.body_bytes, body_check=body.check))
    >>> decode_body(header, body.buffer, schema).to_pylist()
    [{'key': 1, 'value': b'a'}]
    """
    if len(body) != header.body_bytes:
        raise Corrupt(f"a frame body has {len(body)} bytes, its header says {header.body_bytes}")
    if xxh3_64_intdigest(body) != header.body_check:
        raise Corrupt("the checksum of a frame body does not match")
    view = memoryview(body)
    check_message(view, schema=schema, rows=header.rows, codec=header.codec)
    try:
        batch = read_body(body, schema)
        batch.validate(full=True)
    except (pa.ArrowException, OSError, ValueError, OverflowError) as cause:
        raise Corrupt(f"Arrow refuses a frame body: {cause}") from cause
    if header.carried:
        _check_carried(batch)
    return batch


def read_body(body: bytes | memoryview | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """What was encoded, of bytes that are known to be right.

    >>> batch = pa.record_batch({"key": pa.array([1, 2])})
    >>> read_body(encode_body(batch).buffer, batch.schema).equals(batch)
    True
    """
    return _read(body if isinstance(body, pa.Buffer) else pa.py_buffer(body), schema)


def decode_known(
    frame: pa.Buffer,  # may go on behind it
    frame_bytes: int,
    check: int,  # of its header
    schema_of: Callable[[int, bool], pa.Schema],  # by fingerprint, and whether it is carried
) -> tuple[pa.RecordBatch, bool, int]:
    """(the body, whether it is carried, its time) of a frame that this process encoded itself: if
    the checksums are right, so is all the rest.

    >>> from tidemill.batch.header import pack_header, unpack_header
    >>> schema = pa.schema([KEY_FIELD])
    >>> body = encode_body(pa.record_batch([pa.array([1, 2])], schema=schema))
    >>> header = pack_header(rows=2, first_seq=1, key_min=1, key_max=2, time_us=5, fingerprint=9,
    ...     body_bytes=body.body_bytes, body_check=body.check)
    >>> frame = pa.py_buffer(header + body.buffer.to_pybytes())
    >>> known = unpack_header(header).check
    >>> decode_known(frame, len(frame), known, lambda mark, carried: schema)[1:]
    (False, 5)
    """
    view = memoryview(frame)
    is_carried, time_us, mark = check_known(view, 0, frame_bytes, check)
    body = pa.py_buffer(view[HEADER_BYTES:frame_bytes])
    return _read(body, schema_of(mark, is_carried)), is_carried, time_us


def check_known(
    data: bytes | memoryview, start: int, end: int, check: int
) -> tuple[bool, int, int]:
    """(whether it is carried, its time, the fingerprint of its schema) of a frame among `data` that
    this process encoded itself, if header and body are what was written.
    """
    body_at = start + HEADER_BYTES
    is_carried, time_us, mark, body_check = unpack_known(data[start:body_at], check)
    if xxh3_64_intdigest(data[body_at:end]) != body_check:
        raise Corrupt("the checksum of a frame body does not match")
    return is_carried, time_us, mark


def _check_carried(batch: pa.RecordBatch) -> None:
    """Hold the seqs and times of a carried frame to the bounds of those in a header."""
    seqs, times = int64_values(batch.column(1)), int64_values(batch.column(2))
    if seqs.min() < 1:
        raise Corrupt("a carried frame has a sequence number below 1")
    if times.min() < 0 or times.max() > TIME_US_MAX:
        raise Corrupt("a carried frame has an impossible time")


@lru_cache(maxsize=1024)
def body_schema(payload: pa.Schema, *, carried: bool) -> pa.Schema:
    """The schema of bodies with this payload: the key first, then seq and time if carried.

    >>> body_schema(pa.schema([pa.field("n", pa.int32())]), carried=True).names
    ['key', 'seq', 'time', 'n']
    """
    fields = [KEY_FIELD, SEQ_FIELD, TIME_FIELD] if carried else [KEY_FIELD]
    return pa.schema(fields + list(payload))


def join_body(
    keys: np.ndarray | pa.Array,
    payload: pa.RecordBatch,
    *,
    seqs: np.ndarray | pa.Array | None = None,
    times: np.ndarray | pa.Array | None = None,
) -> pa.RecordBatch:
    """The batch that `encode_body` takes: keys and payload side by side.

    With seqs and times (µs since 1970) it is the body of a carried frame.

    >>> payload = pa.record_batch({"n": pa.array([5, 6], pa.int32())})
    >>> join_body(np.array([1, 2]), payload).to_pylist()
    [{'key': 1, 'n': 5}, {'key': 2, 'n': 6}]
    """
    if seqs is not None and times is not None:
        payload = payload.add_column(0, TIME_FIELD, int64_array(times, TIME_FIELD.type))
        payload = payload.add_column(0, SEQ_FIELD, int64_array(seqs, SEQ_FIELD.type))
    return payload.add_column(0, KEY_FIELD, int64_array(keys, KEY_FIELD.type))


def int64_array(values: np.ndarray | pa.Array, kind: pa.DataType = _INT64) -> pa.Array:
    """Eight-byte integers as an array of `kind`, without a copy.

    `pyarrow.array` would do, but it imports pandas wherever it is installed.

    >>> int64_array(np.array([1, 2])).to_pylist()
    [1, 2]
    """
    if isinstance(values, pa.Array):
        return values if values.type == kind else values.view(kind)
    values = np.ascontiguousarray(values, np.int64)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
