"""What we believe of an Arrow IPC record-batch message before Arrow itself may read it.

A body is one encapsulated message: continuation mark, length of the metadata, the metadata (a
flatbuffer), the buffers.

    ff ff ff ff │ length │ Message ─▶ RecordBatch ─▶ rows, nodes[], … │ buffer 0 │ buffer 1 │ …

Arrow's reader checks a great deal, but it allocates what a compressed buffer claims to become, and
it takes the number of rows from the message. So this small reader, which never reads outside the
given bytes, first makes sure that

- the message is a record batch with the rows, nodes and buffers that header and schema call for,
- every buffer lies in the body, and all together are no more than the body: none is counted twice,
- the compression is the header's, and what the buffers claim to become is within the limits,
- columns that may not hold nulls have none.

Everything else (offsets inside the buffers, UTF-8) is left to Arrow's full validation after the
read.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import add
from typing import NamedTuple

import pyarrow as pa

from tidemill.batch.skeleton import (
    MessageNumbers,
    MessagePlaces,
    Skeleton,
    make_skeleton,
    read_by_skeleton,
)
from tidemill.errors import Bug, Corrupt
from tidemill.limits import (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_BYTES_MIN,
    DECOMPRESSED_RATIO_MAX,
    FRAME_METADATA_BYTES_MAX,
)

_PREFIX = struct.Struct(
    "<IiI"
)  # continuation mark, bytes of the metadata, offset of the root table
_TO_VTABLE = struct.Struct("<i")
_MESSAGE_VTABLE = struct.Struct(
    "<HHHHHH"
)  # size, table size, version, header type, header, body length
_BATCH_VTABLE = struct.Struct("<HHHHH")  # size, table size, rows, nodes, buffers
_COMPRESSION_VTABLE = struct.Struct("<HH")
_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")

_CONTINUATION = 0xFFFFFFFF
_METADATA_AT = 8
_VERSION_5 = 4
_RECORD_BATCH = 3
_STORED_RAW = -1  # the claimed size of a buffer that compression did not make smaller


class BodyShape(NamedTuple):
    """What a schema says about its messages: how many nodes and buffers, which hold no null.

    >>> body_shape(pa.schema([("key", pa.int64()), ("n", pa.list_(pa.utf8()))]))[1:3]
    (3, 7)
    """

    schema: pa.Schema
    node_count: int
    buffer_count: int
    required: tuple[int, ...]  # places of the null counts that must be 0, in the unpacked nodes
    nodes: struct.Struct
    buffers: struct.Struct
    skeleton: Skeleton | None


_shapes: dict[int, BodyShape] = {}
_SHAPES_MAX = 4096


def body_shape(schema: pa.Schema) -> BodyShape:
    """The shape of `schema`, remembered by identity, as hashing costs as much as all the checks."""
    shape = _shapes.get(id(schema))
    if shape is None:
        shape = _with_skeleton(_measure(schema))
        if len(_shapes) >= _SHAPES_MAX:
            _shapes.clear()
        # The entry keeps the schema alive, so that its identity cannot pass to another.
        _shapes[id(schema)] = shape
    return shape


def _measure(schema: pa.Schema) -> BodyShape:
    nodes = buffers = 0
    required = []
    for field in schema:
        if not field.nullable:
            required.append(2 * nodes + 1)
        more_nodes, more_buffers = _count(field.type)
        nodes += more_nodes
        buffers += more_buffers
    return BodyShape(
        schema,
        nodes,
        buffers,
        tuple(required),
        struct.Struct(f"<I{2 * nodes}q"),
        struct.Struct(f"<I{2 * buffers}q"),
        None,
    )


def _with_skeleton(shape: BodyShape) -> BodyShape:
    """The shape with the skeleton of our own writer, made from a message of one row of nulls."""
    arrays = [pa.nulls(1, field.type) for field in shape.schema]
    sample = pa.RecordBatch.from_arrays(arrays, schema=shape.schema).serialize()
    data = memoryview(sample)
    return shape._replace(skeleton=make_skeleton(data, _parse(data, shape)[1]))


def _count(kind: pa.DataType) -> tuple[int, int]:
    """The nodes and buffers of one column, its children included."""
    types = pa.types
    if types.is_struct(kind):
        nodes, buffers = 1, 1
    elif types.is_list(kind) or types.is_map(kind):
        nodes, buffers = 1, 2
    elif types.is_binary(kind) or types.is_string(kind):
        return 1, 3
    elif types.is_primitive(kind) or types.is_decimal128(kind):
        return 1, 2
    else:
        raise Bug(f"the type {kind} cannot be in a frame")
    for index in range(kind.num_fields):
        more_nodes, more_buffers = _count(kind.field(index).type)
        nodes += more_nodes
        buffers += more_buffers
    return nodes, buffers


def check_message(data: memoryview, *, schema: pa.Schema, rows: int, codec: int) -> None:
    """Raise `Corrupt` unless `data` is a record-batch message that Arrow may be trusted with.

    >>> schema = pa.schema([pa.field("key", pa.int64(), nullable=False)])
    >>> body = pa.record_batch([pa.array([1, 2])], schema=schema).serialize()
    >>> check_message(memoryview(body), schema=schema, rows=2, codec=0)
    >>> check_message(memoryview(body), schema=schema, rows=3, codec=0)
    Traceback (most recent call last):
    tidemill.errors.Corrupt: a frame body holds 2 rows, its header says 3
    """
    shape = body_shape(schema)
    numbers = read_by_skeleton(data, shape.skeleton)
    if numbers is None:
        try:
            numbers, _ = _parse(data, shape)
        except struct.error as cause:
            raise Corrupt("the message of a frame body points outside of itself") from cause
    _judge(data, numbers, shape, rows, codec)


def _judge(
    data: memoryview, numbers: MessageNumbers, shape: BodyShape, rows: int, codec: int
) -> None:
    start, body_bytes, rows_found, nodes, buffers, compression = numbers
    if start + body_bytes != len(data):
        raise Corrupt("the message of a frame body gives another length than the frame has")
    if rows_found != rows:
        raise Corrupt(f"a frame body holds {rows_found} rows, its header says {rows}")
    for place in shape.required:
        if nodes[place]:
            raise Corrupt("a frame body has nulls in a column that may hold none")
    offsets, lengths = buffers[::2], buffers[1::2]
    if (
        min(buffers) < 0
        or sum(lengths) > body_bytes
        or max(map(add, offsets, lengths)) > body_bytes
    ):
        raise Corrupt("a frame body has a buffer that lies outside of it")
    if compression != codec:
        raise Corrupt("a frame body is compressed in another way than its header says")
    if codec:
        try:
            _check_claims(data, start, offsets, lengths)
        except struct.error as cause:
            raise Corrupt("a compressed buffer is too short for its size") from cause


def _parse(data: memoryview, shape: BodyShape) -> tuple[MessageNumbers, MessagePlaces]:
    """Find the numbers of a message by its own account, and where they are."""
    continuation, metadata_bytes, root = _PREFIX.unpack_from(data)
    if continuation != _CONTINUATION:
        raise Corrupt("a frame body does not start with an Arrow message")
    start = _METADATA_AT + metadata_bytes
    if not 0 < metadata_bytes <= FRAME_METADATA_BYTES_MAX or start > len(data):
        raise Corrupt(f"a frame body claims {metadata_bytes} bytes of metadata")

    message = _METADATA_AT + root
    size, _, version_at, type_at, header_at, length_at = _MESSAGE_VTABLE.unpack_from(
        data, _vtable(data, message)
    )
    if size < _MESSAGE_VTABLE.size or not (version_at and type_at and header_at and length_at):
        raise Corrupt("the message of a frame body lacks a field")
    if _U16.unpack_from(data, message + version_at)[0] != _VERSION_5:
        raise Corrupt("the message of a frame body has another version of Arrow's metadata")
    if _U8.unpack_from(data, message + type_at)[0] != _RECORD_BATCH:
        raise Corrupt("the message of a frame body is no record batch")

    batch = message + header_at
    batch += _U32.unpack_from(data, batch)[0]
    vtable = _vtable(data, batch)
    size, _, rows_at, nodes_at, buffers_at = _BATCH_VTABLE.unpack_from(data, vtable)
    if size < _BATCH_VTABLE.size or not (rows_at and nodes_at and buffers_at):
        raise Corrupt("the record batch of a frame body lacks a field")
    nodes_at += batch + _U32.unpack_from(data, batch + nodes_at)[0]
    buffers_at += batch + _U32.unpack_from(data, batch + buffers_at)[0]
    node_count, *nodes = shape.nodes.unpack_from(data, nodes_at)
    buffer_count, *buffers = shape.buffers.unpack_from(data, buffers_at)
    if node_count != shape.node_count or buffer_count != shape.buffer_count:
        raise Corrupt("a frame body has other columns than its schema")

    codec = 0
    if size > _BATCH_VTABLE.size:
        place = _U16.unpack_from(data, vtable + _BATCH_VTABLE.size)[0]
        codec = _compression(data, batch + place) if place else 0
    numbers = MessageNumbers(
        start,
        _I64.unpack_from(data, message + length_at)[0],
        _I64.unpack_from(data, batch + rows_at)[0],
        nodes,
        buffers,
        codec,
    )
    places = MessagePlaces(
        (message + length_at, 1),
        (batch + rows_at, 1),
        (nodes_at + _U32.size, 2 * node_count),
        (buffers_at + _U32.size, 2 * buffer_count),
    )
    return numbers, places


def _vtable(data: memoryview, table: int) -> int:
    """Where a table has its vtable. A negative place would count from the end, so it is refused."""
    place: int = table - _TO_VTABLE.unpack_from(data, table)[0]
    if place < _METADATA_AT:
        raise Corrupt("the message of a frame body points outside of itself")
    return place


def _compression(data: memoryview, at: int) -> int:
    """The codec of a BodyCompression table, numbered as in the frame header."""
    table = at + _U32.unpack_from(data, at)[0]
    vtable = _vtable(data, table)
    (size, _) = _COMPRESSION_VTABLE.unpack_from(data, vtable)
    values = [0, 0]  # codec and method; a field that is not there is 0
    for index in range(2):
        if size >= 6 + 2 * index:
            place = _U16.unpack_from(data, vtable + 4 + 2 * index)[0]
            if place:
                values[index] = _U8.unpack_from(data, table + place)[0]
    if values[0] > 1 or values[1]:
        raise Corrupt("a frame body is compressed in an unknown way")
    return 1 + values[0]


def _check_claims(
    data: memoryview, start: int, offsets: Sequence[int], lengths: Sequence[int]
) -> None:
    """Bound what the buffers claim to become, since Arrow allocates that before it looks."""
    total = 0
    for offset, length in zip(offsets, lengths, strict=True):
        if length == 0:
            continue
        claimed = _I64.unpack_from(data, start + offset)[0]
        if claimed < _STORED_RAW or length < _I64.size:
            raise Corrupt("a compressed buffer claims an impossible size")
        total += length if claimed == _STORED_RAW else claimed
    if total > decompressed_bytes_max(len(data)):
        raise Corrupt(f"a frame body of {len(data)} bytes claims to hold {total} bytes")


def decompressed_bytes_max(body_bytes: int) -> int:
    """What a compressed body of so many bytes may become. The encoder keeps to it as well.

    >>> decompressed_bytes_max(4096) // 2**20
    16
    """
    by_ratio = max(DECOMPRESSED_BYTES_MIN, DECOMPRESSED_RATIO_MAX * body_bytes)
    return min(by_ratio, DECOMPRESSED_BYTES_MAX)
