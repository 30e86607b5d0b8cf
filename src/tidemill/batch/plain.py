"""The short way in and out for single items of bytes: bodies of frames without Arrow's builders and
readers.

For one row they cost more than all the rest of a push or a pop. The bytes are those that Arrow
would have written.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

from tidemill.batch.frame import EncodedBody, body_schema
from tidemill.batch.header import CODEC_NONE
from tidemill.batch.ipc import body_shape
from tidemill.batch.schema import DEFAULT
from tidemill.batch.skeleton import write_by_skeleton
from tidemill.limits import INT64_MAX, INT64_MIN, SHARED_FRAME_ITEM_BYTES_MAX

Columns: TypeAlias = tuple[NDArray[np.int64], pa.Array]

_BINARY = pa.binary()
_PADDING = [bytes(count) for count in range(8)]
_ONE = struct.Struct("<qii")  # the key and the offsets of a single row
_KNOWN_MAX = 256  # of which the metadata is kept: it is the same whenever items are of one size


class PlainRow(NamedTuple):
    """One small item of bytes."""

    key: int
    value: bytes

    @property
    def row_count(self) -> int:
        return 1

    @property
    def data_bytes(self) -> int:
        return len(self.value)


class PlainForm:
    """Recognises single items of bytes, and encodes some of them together.

    >>> form = PlainForm(body_schema(DEFAULT, carried=False))
    >>> form.row_of([(3, b"c")], now_ns=None), form.row_of([(3, "c")], now_ns=None)
    (PlainRow(key=3, value=b'c'), None)
    """

    __slots__ = ("_known", "_skeleton")

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` is that of the bodies of the queue's frames; of any but the default one, no row
        is plain.
        """
        is_default = schema.equals(body_schema(DEFAULT, carried=False))
        self._skeleton = body_shape(schema).skeleton if is_default else None
        self._known: dict[tuple[int, int], bytes] = {}  # metadata, by rows and bytes of values

    @property
    def is_used(self) -> bool:
        """Whether a row of the queue can be plain at all."""
        return self._skeleton is not None

    def row_of(self, data: object, now_ns: Callable[[], int] | None) -> PlainRow | None:
        """The row of a list of one, if it is plain; `now_ns` gives the key of one without."""
        if self._skeleton is None or type(data) is not list or len(data) != 1:
            return None
        row = data[0]
        if type(row) is tuple and len(row) == 2:
            key, value = row
        elif type(row) is bytes and now_ns is not None:
            key, value = now_ns(), row
        else:
            return None
        if type(key) is not int or not INT64_MIN <= key <= INT64_MAX:
            return None
        if type(value) is not bytes or len(value) > SHARED_FRAME_ITEM_BYTES_MAX:
            return None
        return PlainRow(key, value)

    def encode(self, rows: Sequence[PlainRow]) -> EncodedBody:
        """The body of these rows, in the order given.

        >>> schema = body_schema(DEFAULT, carried=False)
        >>> body = PlainForm(schema).encode([PlainRow(1, b"a"), PlainRow(2, b"bc")])
        >>> arrays = [pa.array([1, 2]), pa.array([b"a", b"bc"])]
        >>> batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        >>> body.buffer == batch.serialize().to_pybytes()
        True
        """
        count = len(rows)
        if count == 1:
            [(key, value)] = rows
            data_bytes = len(value)
            numbers = _ONE.pack(key, 0, data_bytes)
        else:
            value = b"".join([value for _, value in rows])
            data_bytes = len(value)
            keys = struct.pack(f"<{count}q", *[key for key, _ in rows])
            ends = accumulate([len(value) for _, value in rows])
            offsets = struct.pack(f"<{count + 1}i", 0, *ends)
            numbers = keys + offsets + _PADDING[-len(offsets) % 8]
        metadata = self._known.get((count, data_bytes)) or self._metadata(count, data_bytes)
        body = metadata + numbers + value + _PADDING[-data_bytes % 8]
        return EncodedBody(body, len(body), xxh3_64_intdigest(body), CODEC_NONE, count)

    def decode_ones(self, data: bytes, bodies: Sequence[tuple[int, int]]) -> Columns | None:
        """The keys and values of bodies with a single row, each given by where it begins and ends;
        None if one is not, to the byte, as `encode` would have written it.

        >>> form = PlainForm(body_schema(DEFAULT, carried=False))
        >>> one, other = (form.encode([PlainRow(key, b"ab")]).buffer for key in (1, 2))
        >>> keys, values = form.decode_ones(one + other, [(0, len(one)), (len(one), 2 * len(one))])
        >>> keys.tolist(), values.to_pylist()
        ([1, 2], [b'ab', b'ab'])
        """
        if self._skeleton is None:
            return None
        numbers_at = self._skeleton.layout.size
        numbers_bytes = numbers_at + _ONE.size
        known = self._known
        keys: list[int] = []
        values: list[bytes] = []
        ends: list[int] = [0]
        total = 0
        for start, end in bodies:
            room = end - start - numbers_bytes
            key, _, length = _ONE.unpack_from(data, start + numbers_at) if room >= 0 else (0, 0, -1)
            if length < 0 or room != length + -length % 8:
                return None
            if not data.startswith(known.get((1, length)) or self._metadata(1, length), start):
                return None
            at = start + numbers_bytes
            keys.append(key)
            values.append(data[at : at + length])
            total += length
            ends.append(total)
        buffers = [None, pa.py_buffer(np.array(ends, np.int32)), pa.py_buffer(b"".join(values))]
        column = pa.Array.from_buffers(_BINARY, len(keys), buffers)
        return np.array(keys, np.int64), column

    def _metadata(self, count: int, data_bytes: int) -> bytes:
        """What Arrow writes before the columns of so many rows, with so many bytes of values."""
        if self._skeleton is None:
            raise TypeError("only rows of the default schema are plain")
        offsets_at, offsets_bytes = 8 * count, 4 * (count + 1)
        data_at = offsets_at + offsets_bytes + -offsets_bytes % 8
        metadata = write_by_skeleton(
            self._skeleton,
            data_at + data_bytes + -data_bytes % 8,
            count,
            [count, 0, count, 0],
            # (where, length) of each buffer; without nulls those of validity are empty.
            [
                *(0, 0, 0, offsets_at),
                *(offsets_at, 0, offsets_at, offsets_bytes, data_at, data_bytes),
            ],
        )
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[count, data_bytes] = metadata
        return metadata
