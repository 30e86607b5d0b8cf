"""Rows as NDJSON, a column at a time.

Arrow reads JSON but does not write it. Here each column becomes a column of JSON text, and one join
across the columns gives the lines; nothing is done row by row.

    bool, integers, floats      as they are; NaN and infinities as strings, since JSON has none
    utf8, decimal, date, time   strings; times as in 2026-01-31T12:00:00.000000Z
    duration                    microseconds
    binary                      a string: UTF-8 as it is, or base64
    list, struct                arrays and objects; a map is an array of {"key": …, "value": …}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.errors import InvalidInput
from tidemill.gateway.rows import base64_column

_types = pa.types
_PIECE_BYTES = 8 * 1024 * 1024  # of rows that become one buffer of text
_SPECIAL = '["\\\\\x00-\x1f]'
_ESCAPES = {
    "\\": "\\\\",
    '"': '\\"',
    **{chr(code): json.dumps(chr(code))[1:-1] for code in range(0x20)},
}


def encode_ndjson(batch: pa.RecordBatch, *, binary: str) -> Iterator[pa.Buffer]:
    """The rows as lines of JSON.

    >>> rows = pa.record_batch({"key": [1, 2], "value": [b"a", None]})
    >>> b"".join(encode_ndjson(rows, binary="utf8"))
    b'{"key":1,"value":"a"}\\n{"key":2,"value":null}\\n'
    """
    rows = batch.num_rows
    step = max(1, rows * _PIECE_BYTES // max(batch.nbytes, 1))
    for start in range(0, rows, step):
        piece = batch.slice(start, step)
        objects = _objects(piece.columns, piece.schema.names, binary)
        lines = pc.binary_join_element_wise(objects, "", "\n")
        yield text_of(lines)


def text_of(lines: pa.Array) -> pa.Buffer:
    """The bytes of all values one after the other, without a copy.

    >>> bytes(text_of(pa.array(["one,", "two"])))
    b'one,two'
    """
    offsets = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset :][: len(lines) + 1]
    return lines.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _objects(columns: list[pa.Array], names: list[str], binary: str) -> pa.Array:
    """A column of JSON objects; never null."""
    parts: list[Any] = []
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        parts += [f"{',' if at else '{'}{json.dumps(name, ensure_ascii=False)}:"]
        parts += [encode_column(column, name, binary)]
    return pc.binary_join_element_wise(*parts, "}", "")


def encode_column(column: pa.Array, name: str, binary: str) -> pa.Array:
    """A column as JSON text, with nulls as the text null.

    >>> encode_column(pa.array([["a"], [], None]), "tags", "utf8").to_pylist()
    ['["a"]', '[]', 'null']
    """
    if column.null_count == len(column):
        return pa.repeat(pa.scalar("null"), len(column))
    return pc.fill_null(_encode(column, name, binary), "null")


def _encode(column: pa.Array, name: str, binary: str) -> pa.Array:
    kind = column.type
    if _types.is_boolean(kind) or _types.is_integer(kind):
        return column.cast(pa.utf8())
    if _types.is_floating(kind):
        return _floats(column)
    if _types.is_string(kind):
        return _quoted(_escaped(column))
    if _types.is_binary(kind):
        return _quoted(bytes_as_text(column, name, binary, escape=True))
    if _types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.utf8())
    if _types.is_timestamp(kind):
        return _quoted(pc.replace_substring(column.cast(pa.utf8()), " ", "T"))
    if _types.is_list(kind) or _types.is_map(kind):
        return _arrays(column, name, binary)
    if _types.is_struct(kind):
        found = _objects(column.flatten(), [field.name for field in kind], binary)
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.utf8()))
    return _quoted(column.cast(pa.utf8()))


def bytes_as_text(column: pa.Array, name: str, binary: str, *, escape: bool = False) -> pa.Array:
    """A binary column as text, without loss: as UTF-8, or as base64.

    >>> bytes_as_text(pa.array([b"\\xff"]), "value", "base64").to_pylist()
    ['/w==']
    >>> bytes_as_text(pa.array([b"\\xff"]), "value", "utf8")
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: column 'value' holds bytes that are not UTF-8: add \
--binary base64, or write Parquet
    """
    if binary == "base64":
        return base64_column.encode(column)
    try:
        text = column.cast(pa.utf8())
    except pa.ArrowInvalid as cause:
        raise InvalidInput(
            f"column {name!r} holds bytes that are not UTF-8: add --binary base64, or write Parquet"
        ) from cause
    return _escaped(text) if escape else text


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")


def _escaped(column: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(column, _SPECIAL)).as_py():
        return column
    for character, escape in _ESCAPES.items():
        if pc.any(pc.match_substring(column, character)).as_py():
            column = pc.replace_substring(column, character, escape)
    return column


def _floats(column: pa.Array) -> pa.Array:
    # A whole number gets its ".0", so that a reader that guesses types does not take it for one.
    text = pc.replace_substring_regex(column.cast(pa.utf8()), "^(-?[0-9]+)$", "\\1.0")
    if pc.all(pc.is_finite(column)).as_py() in (True, None):
        return text
    infinite = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    special = pc.if_else(pc.is_nan(column), '"NaN"', infinite)
    return pc.if_else(pc.is_finite(column), text, special)


def _arrays(column: pa.Array, name: str, binary: str) -> pa.Array:
    if _types.is_map(column.type):
        # As what it is underneath: a list of structs, which flattens with its nulls left out.
        entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(entry))
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    inner = encode_column(column.flatten(), name, binary)
    lists = pa.ListArray.from_arrays(pa.array(offsets), inner)
    found = pc.binary_join_element_wise("[", pc.binary_join(lists, ","), "]", "")
    return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.utf8()))
