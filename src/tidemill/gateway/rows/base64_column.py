"""Base64 of a whole column at once.

values    "a"      "bcd"   "ef"          one call of b64encode over all of them,
padded    "a\\0\\0"  "bcd"   "ef\\0"        since each starts on a multiple of 3;
encoded   "YQ=="   "YmNk"  "ZWY="        then the padding is marked
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import InvalidInput

_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
_PADDING = ord("=")
_ZERO_BITS = ord("A")


def encode(array: pa.Array) -> pa.Array:
    """The values of a binary column as base64 text.

    >>> encode(pa.array([b"a", None, b"", b"bcd"])).to_pylist()
    ['YQ==', None, '', 'YmNk']
    """
    lengths, data = _parts(array)
    triples = (lengths + 2) // 3
    padded = np.zeros(int(triples.sum()) * 3, np.uint8)
    padded[_places(lengths, _starts(triples * 3))] = data
    text = np.frombuffer(base64.b64encode(padded.tobytes()), np.uint8).copy()
    ends = np.cumsum(triples) * 4
    missing = triples * 3 - lengths
    text[ends[missing >= 1] - 1] = _PADDING
    text[ends[missing == 2] - 2] = _PADDING
    return _column(array, triples * 4, text, pa.utf8())


def decode(array: pa.Array, name: str) -> pa.Array:
    """The bytes that a column of base64 text stands for.

    >>> decode(pa.array(["YQ==", None, "YmNk"]), "value").to_pylist()
    [b'a', None, b'bcd']
    """
    lengths, text = _parts(array)
    if (lengths % 4).any():
        row = int((lengths % 4).argmax())
        raise InvalidInput(f"column {name!r} is no base64 in row {row}: its length is no 4, 8, …")
    ends = np.cumsum(lengths)
    last = ends[lengths > 0] - 1
    missing = np.zeros(len(lengths), np.int64)
    missing[lengths > 0] = (text[last] == _PADDING).astype(np.int64) + (
        (text[last] == _PADDING) & (text[last - 1] == _PADDING)
    )
    text = text.copy()
    text[ends[missing >= 1] - 1] = _ZERO_BITS
    text[ends[missing == 2] - 2] = _ZERO_BITS
    try:
        data = np.frombuffer(base64.b64decode(text.tobytes(), validate=True), np.uint8)
    except binascii.Error as error:
        raise InvalidInput(f"column {name!r} is no base64: {error}") from error
    kept = lengths // 4 * 3 - missing
    return _column(array, kept, data[_places(kept, _starts(lengths // 4 * 3))], pa.binary())


def _parts(array: pa.Array) -> tuple[np.ndarray[Any, np.dtype[np.int64]], _Bytes]:
    """The length of each value, nulls as empty, and the bytes of all of them."""
    plain = pc.fill_null(array.cast(pa.binary()), b"")
    offsets = np.frombuffer(plain.buffers()[1], np.int32)[plain.offset :][: len(plain) + 1]
    buffer = plain.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.empty(0, np.uint8)
    if not len(plain):
        return np.empty(0, np.int64), np.empty(0, np.uint8)
    return np.diff(offsets).astype(np.int64), data[offsets[0] : offsets[-1]]


def _starts(lengths: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.cumsum(lengths) - lengths


def _places(
    lengths: np.ndarray[Any, np.dtype[np.int64]], starts: np.ndarray[Any, np.dtype[np.int64]]
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Where each byte of values of these lengths lies if the values start there."""
    return np.arange(int(lengths.sum())) + np.repeat(starts - _starts(lengths), lengths)


def _column(
    like: pa.Array, lengths: np.ndarray[Any, np.dtype[np.int64]], data: _Bytes, kind: pa.DataType
) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data.tobytes())]
    large = pa.large_utf8() if pa.types.is_string(kind) else pa.large_binary()
    found = pa.Array.from_buffers(large, len(lengths), buffers).cast(kind)
    return pc.if_else(pc.is_valid(like), found, pa.scalar(None, kind))
