"""Python objects as keys and payload: pairs, plain values, dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.columns import check_depth, column_from_values, normalise_columns
from tidemill.batch.keys import keys_from_values
from tidemill.batch.schema import DEFAULT, check_payload_schema, default_if_plain, only_column
from tidemill.batch.tables import KeysAndPayload, listed, stays
from tidemill.errors import InvalidInput, InvalidKey, SchemaMismatch, TooLarge
from tidemill.limits import BATCH_BYTES_MAX, MIB
from tidemill.shown import shown

ALLOWED = (
    "give a list of bytes, of dicts or (to a queue) of (key, bytes) pairs, or an Arrow, pandas or "
    "polars table"
)

_BYTES = (bytes, bytearray, memoryview)


def from_list(data: list[Any], schema: pa.Schema | None, key: str | None) -> KeysAndPayload:
    """The keys and the payload of Python rows; what they are is decided by the first.

    >>> from_list([(3, b"c")], None, None)[1].to_pylist()
    [{'value': b'c'}]
    """
    if not data:
        wanted = DEFAULT if schema is None else schema
        empty = [pa.array([], field.type) for field in wanted]
        return None, pa.RecordBatch.from_arrays(empty, schema=wanted)
    first = data[0]
    if isinstance(first, Mapping):
        return _from_dicts(data, schema, key)
    if key is not None:
        raise InvalidKey(f"only dicts and tables have a column {shown(key)} to take the keys from")
    if isinstance(first, (tuple, list)):
        return _from_pairs(data, schema)
    return None, _from_values(data, schema)


def _from_pairs(data: list[Any], schema: pa.Schema | None) -> KeysAndPayload:
    try:
        first = [key for key, _ in data]
        second = [value for _, value in data]
    except (TypeError, ValueError) as cause:
        raise InvalidInput(f"not every row is a (key, payload) pair: {ALLOWED}") from cause
    keys = keys_from_values(first)
    if isinstance(second[0], Mapping):
        return keys, _from_dicts(second, schema, None, keyed=True)[1]
    return keys, _from_values(second, schema)


def _from_values(values: Sequence[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    field = only_column(schema)
    schema = DEFAULT if schema is None else schema
    if field.type == pa.binary() and not field.nullable:
        return pa.RecordBatch.from_arrays([_binary(values, field)], schema=schema)
    array = column_from_values(values, field)
    return normalise_columns(pa.RecordBatch.from_arrays([array], schema=schema), schema)


def _binary(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Bytes, back to back. Arrow's own conversion would encode strings; a join does not."""
    try:
        joined = b"".join(values)
        lengths = np.fromiter(map(len, values), np.int64, len(values))
    except TypeError as cause:
        raise _no_bytes(values, field) from cause
    if len(joined) > BATCH_BYTES_MAX:
        raise TooLarge(f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB: push in parts")
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] != len(joined):
        # A memoryview counts its elements, which need not be bytes; so do arrays, which are none.
        if not all(isinstance(value, _BYTES) for value in values):
            raise _no_bytes(values, field)
        return _binary([bytes(value) for value in values], field)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    return pa.Array.from_buffers(field.type, len(values), buffers)


def _no_bytes(values: Sequence[Any], field: pa.Field) -> SchemaMismatch:
    for row, value in enumerate(values):
        if not isinstance(value, _BYTES):
            hint = ": encode it, as in text.encode()" if isinstance(value, str) else ""
            return SchemaMismatch(
                f"row {row}: column {field.name!r} holds bytes, not {type(value).__name__}{hint}"
            )
    return SchemaMismatch(f"column {field.name!r} holds bytes")


def _from_dicts(
    data: list[Any], schema: pa.Schema | None, key: str | None, *, keyed: bool = False
) -> KeysAndPayload:
    """Rows as dicts, which may leave entries out; `keyed` if the keys are known from elsewhere."""
    try:
        names = list(dict.fromkeys(chain.from_iterable(data)))
        columns = {name: [row.get(name) for row in data] for name in names}
    except (AttributeError, TypeError) as cause:
        raise InvalidInput(f"not every row is a dict: {ALLOWED}") from cause
    keys = None
    if not keyed:
        name = "key" if key is None else key
        if name in columns:
            keys = keys_from_values(columns[name])
            if not stays(name, schema):
                del columns[name]
        elif key is not None:
            raise InvalidKey(
                f"there is no entry {shown(key)} to take the keys from; there are {listed(names)}"
            )
    if schema is None:
        schema = _inferred(columns)
    for name in columns:
        if not isinstance(name, str) or schema.get_field_index(name) < 0:
            raise SchemaMismatch(
                f"the payload has no column {name!r}; its columns are {listed(schema.names)}"
            )
    arrays = [
        column_from_values(columns[field.name], field)
        if field.name in columns
        else pa.nulls(len(data), field.type)
        for field in schema
    ]
    return keys, normalise_columns(pa.RecordBatch.from_arrays(arrays, schema=schema), schema)


def _inferred(columns: dict[str, list[Any]]) -> pa.Schema:
    """The schema of a queue that declares none: what Arrow takes the values for."""
    fields = []
    for name, values in columns.items():
        if not isinstance(name, str):
            raise SchemaMismatch(f"a column is named by a string, not by {name!r}")
        check_depth(values, name)
        try:
            fields.append(pa.field(name, pa.array(values).type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as cause:
            raise SchemaMismatch(f"column {name!r} has no one type: {cause}") from cause
    found = check_payload_schema(pa.schema(fields))
    return default_if_plain(found, has_nulls=None in columns.get("value", ()))
