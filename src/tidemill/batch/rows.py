"""What a caller pushes, as keys and payload.

    pairs, bytes, dicts ──┐
    Arrow, polars       ──┼──▶  to_rows  ──▶  Rows(keys, payload)
    pandas              ──┘

The key of tabular data is its column `key`, or the one that the caller names; one that is named and also in the schema of the
queue stays in the payload, so that `push(table, key="ts")` gives `ts` back in its own type. Rows without a key column have no
keys: the queue gives them the time of the push.

What a queue gave can be pushed as it is: a batch's `seq` and `time` are left behind, because the other queue gives its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.columns import column_from_values, normalise_columns
from tidemill.batch.frame import KEY_FIELD, SEQ_FIELD, TIME_FIELD
from tidemill.batch.keys import Keys, keys_from_array, keys_from_values
from tidemill.batch.schema import DEFAULT, check_payload_schema
from tidemill.batch.sizes import check_rows, check_sizes
from tidemill.errors import InvalidInput, InvalidKey, SchemaMismatch, TooLarge
from tidemill.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, MIB

_ALLOWED = (
    "push a list of (key, bytes) pairs, of bytes or of dicts, or an Arrow, pandas or polars table"
)


@dataclass(frozen=True, slots=True)
class Rows:
    """One push in normal form: int64 keys (None if none were given) and the payload in the schema of the queue.

    >>> rows = to_rows([(3, b"c"), (1, b"a")], schema=None)
    >>> rows.keys, rows.payload.num_rows, len(rows)
    (array([3, 1]), 2, 2)
    """

    keys: Keys | None
    payload: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.payload.num_rows)


def to_rows(data: object, *, schema: pa.Schema | None, key: str | None = None) -> Rows:
    """Bring any accepted form into keys and payload; `schema` is the queue's in normal form, None takes the data's own.

    Nothing of the caller's is changed or sorted, and a form that is not accepted raises before anything is written.

    >>> import pyarrow as pa
    >>> rows = to_rows([{"id": 7, "city": "Ghent"}], schema=None, key="id")
    >>> rows.keys, rows.payload.to_pylist()
    (array([7]), [{'id': 7, 'city': 'Ghent'}])
    >>> to_rows(pa.table({"key": [2, 1], "value": [b"b", b"a"]}), schema=DEFAULT).payload.to_pylist()
    [{'value': b'b'}, {'value': b'a'}]
    """
    if type(data) is list:
        rows = _from_list(data, schema, key)
    elif isinstance(data, pa.RecordBatch):
        rows = _from_batch(data, schema, key)
    else:
        rows = _from_other(data, schema, key)
    check_sizes(rows.payload)
    return rows


def _from_other(data: Any, schema: pa.Schema | None, key: str | None) -> Rows:
    if isinstance(data, (str, bytes, bytearray, memoryview)):
        raise InvalidInput(f"one {type(data).__name__} is not a batch: {_ALLOWED}")
    if isinstance(data, Mapping):
        raise InvalidInput(
            f"a mapping is ambiguous: {_ALLOWED}; for columns use pyarrow.table(mapping)"
        )
    if isinstance(data, pa.Table):
        return _from_batch(_one_batch(data), schema, key)
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(data, pandas.DataFrame):
            return _from_batch(
                _one_batch(pa.Table.from_pandas(data, preserve_index=False)), schema, key
            )
        if isinstance(data, (pa.Array, pa.ChunkedArray)) and not pa.types.is_struct(data.type):
            return _from_column(data, schema, key)
        if hasattr(data, "__arrow_c_stream__"):
            return _from_batch(_from_stream(data), schema, key)
        if hasattr(data, "__arrow_c_array__"):
            return _from_batch(pa.record_batch(data), schema, key)
    except (pa.ArrowException, TypeError) as cause:
        raise SchemaMismatch(f"Arrow cannot take a {type(data).__name__}: {cause}") from cause
    if not isinstance(data, Iterable):
        raise InvalidInput(f"a {type(data).__name__} is not a batch: {_ALLOWED}")
    rows = list(islice(data, BATCH_ROWS_MAX + 1))
    check_rows(len(rows))
    return _from_list(rows, schema, key)


def _from_stream(data: Any) -> pa.RecordBatch:
    """All batches of a stream, which may be without end: so the bounds are checked on the way."""
    reader = pa.RecordBatchReader.from_stream(data)
    batches, rows, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        check_rows(rows)
        if size > BATCH_BYTES_MAX:
            raise TooLarge(f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB: push in parts")
    return _one_batch(pa.Table.from_batches(batches, reader.schema))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table's rows as one batch, copied only if they are in several pieces."""
    check_rows(table.num_rows)
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    if table.nbytes > BATCH_BYTES_MAX:
        raise TooLarge(f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB: push in parts")
    return pa.RecordBatch.from_arrays(
        [_one_array(column) for column in table.columns], schema=table.schema
    )


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


def _from_batch(batch: pa.RecordBatch, schema: pa.Schema | None, key: str | None) -> Rows:
    names = batch.schema.names
    if names[:3] == ["seq", "key", "time"] and _came_from_a_queue(batch.schema):
        batch = batch.remove_column(2).remove_column(0)
        names = batch.schema.names
    keys = None
    index = batch.schema.get_field_index("key" if key is None else key)
    if index >= 0:
        keys = keys_from_array(batch.column(index))
    elif key is not None:
        raise InvalidKey(f"there is no column {key!r} to take the keys from" + _among(names))
    if index >= 0 and not _stays(names[index], schema):
        batch = batch.remove_column(index)
    return Rows(keys, normalise_columns(batch, _schema_for(batch, schema)))


def _came_from_a_queue(schema: pa.Schema) -> bool:
    """Whether these are the columns of `Batch.to_arrow`. A user's own `time` that looks different is not dropped."""
    return all(
        schema.field(index).type == field.type
        for index, field in enumerate((SEQ_FIELD, KEY_FIELD, TIME_FIELD))
    )


def _among(names: Sequence[str]) -> str:
    return "; the columns are " + ", ".join(repr(name) for name in names)


def _stays(name: str, schema: pa.Schema | None) -> bool:
    """Whether the column that keys are taken from is a payload column as well."""
    if name == KEY_FIELD.name:
        return False
    return schema is None or schema.get_field_index(name) >= 0


def _schema_for(batch: pa.RecordBatch, schema: pa.Schema | None) -> pa.Schema:
    if schema is not None:
        return schema
    found = check_payload_schema(batch.schema)
    # Arrow columns are nullable unless somebody cared, so plain bytes are still the default payload.
    if (
        found.names == DEFAULT.names
        and found.types == DEFAULT.types
        and not batch.column(0).null_count
    ):
        return DEFAULT
    return found


def _from_column(
    column: pa.Array | pa.ChunkedArray, schema: pa.Schema | None, key: str | None
) -> Rows:
    """An array that is no struct is the only payload column, without keys."""
    array = _one_array(column) if isinstance(column, pa.ChunkedArray) else column
    name = _only_column(schema).name
    return _from_batch(pa.RecordBatch.from_arrays([array], [name]), schema, key)


def _only_column(schema: pa.Schema | None) -> pa.Field:
    if schema is None:
        return DEFAULT.field(0)
    if len(schema) != 1:
        raise SchemaMismatch(
            f"the queue has {len(schema)} columns: push dicts or a table" + _among(schema.names)
        )
    return schema.field(0)


def _from_list(data: list[Any], schema: pa.Schema | None, key: str | None) -> Rows:
    check_rows(len(data))
    if not data:
        return Rows(None, _no_rows(DEFAULT if schema is None else schema))
    first = data[0]
    if isinstance(first, (tuple, list)):
        if key is not None:
            raise InvalidKey(
                f"pairs have their key in front, so there is no column {key!r} to name"
            )
        return _from_pairs(data, schema)
    if isinstance(first, Mapping):
        return _from_dicts(data, schema, key)
    if key is not None:
        raise InvalidKey(
            f"plain values have no column {key!r} to take the keys from: push dicts or a table"
        )
    return Rows(None, _from_values(data, schema))


def _from_pairs(data: list[Any], schema: pa.Schema | None) -> Rows:
    try:
        first, second = zip(*data, strict=True)
    except (TypeError, ValueError) as cause:
        raise InvalidInput(f"not every row is a (key, payload) pair: {_ALLOWED}") from cause
    keys = keys_from_values(first)
    if isinstance(second[0], Mapping):
        return Rows(keys, _from_dicts(list(second), schema, None, keyed=True).payload)
    return Rows(keys, _from_values(second, schema))


def _from_values(values: Sequence[Any], schema: pa.Schema | None) -> pa.RecordBatch:
    field = _only_column(schema)
    if field.type == pa.binary() and not field.nullable:
        array = _binary(values, field)
    else:
        array = column_from_values(values, field)
        if not field.nullable and array.null_count:
            raise SchemaMismatch(f"column {field.name!r} may not be null")
    return pa.RecordBatch.from_arrays([array], schema=DEFAULT if schema is None else schema)


def _binary(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Bytes, back to back. Unlike Arrow's own conversion a join takes nothing but bytes, and it is as fast."""
    try:
        joined = b"".join(values)
    except TypeError as cause:
        raise _no_bytes(values, field) from cause
    if len(joined) > BATCH_BYTES_MAX:
        raise TooLarge(f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB: push in parts")
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    if offsets[-1] != len(joined):
        # A memoryview counts its elements, which need not be bytes.
        return _binary([bytes(value) for value in values], field)
    return pa.Array.from_buffers(
        field.type, len(values), [None, pa.py_buffer(offsets), pa.py_buffer(joined)]
    )


def _no_bytes(values: Sequence[Any], field: pa.Field) -> SchemaMismatch:
    for row, value in enumerate(values):
        if not isinstance(value, (bytes, bytearray, memoryview)):
            hint = ": encode it, as in text.encode()" if isinstance(value, str) else ""
            return SchemaMismatch(
                f"row {row}: column {field.name!r} holds bytes, not {type(value).__name__}{hint}"
            )
    return SchemaMismatch(f"column {field.name!r} holds bytes")


def _from_dicts(
    data: list[Any], schema: pa.Schema | None, key: str | None, *, keyed: bool = False
) -> Rows:
    try:
        names = list(dict.fromkeys(chain.from_iterable(data)))
        named = "key" if key is None else key
        keys = None
        if named in names and not keyed:
            keys = keys_from_values([row.get(named) for row in data])
            if not _stays(named, schema):
                names.remove(named)
        elif key is not None:
            raise InvalidKey(f"there is no entry {key!r} to take the keys from" + _among(names))
        columns = {name: [row.get(name) for row in data] for name in names}
    except (AttributeError, TypeError) as cause:
        raise InvalidInput(f"not every row is a dict: {_ALLOWED}") from cause
    if schema is None:
        schema = _inferred(columns)
        if schema is DEFAULT:
            return Rows(keys, _from_values(columns["value"], schema))
    for name in names:
        if not isinstance(name, str) or schema.get_field_index(name) < 0:
            raise SchemaMismatch(f"the queue has no column {name!r}" + _among(schema.names))
    arrays = [
        column_from_values(columns[field.name], field)
        if field.name in columns
        else pa.nulls(len(data), field.type)
        for field in schema
    ]
    return Rows(keys, normalise_columns(pa.RecordBatch.from_arrays(arrays, schema=schema), schema))


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def _inferred(columns: dict[str, list[Any]]) -> pa.Schema:
    """The schema of the first dicts of a queue that declares none: what Arrow takes the values for."""
    fields = []
    for name, values in columns.items():
        try:
            fields.append(pa.field(name, pa.array(values).type))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as cause:
            raise SchemaMismatch(f"column {name!r} has no one type: {cause}") from cause
    found = check_payload_schema(pa.schema(fields))
    if (
        found.names == DEFAULT.names
        and found.types == DEFAULT.types
        and None not in columns["value"]
    ):
        return DEFAULT
    return found


def sorted_by_key(keys: Keys, payload: pa.RecordBatch) -> tuple[Keys, pa.RecordBatch]:
    """The rows in ascending order of key, equal keys in the order given; the very same objects if they are sorted.

    >>> keys, payload = sorted_by_key(np.array([3, 1]), pa.record_batch({"value": [b"c", b"a"]}))
    >>> keys, payload.to_pylist()
    (array([1, 3]), [{'value': b'a'}, {'value': b'c'}])
    """
    if len(keys) < 2 or bool((keys[1:] >= keys[:-1]).all()):
        return keys, payload
    order = np.argsort(keys, kind="stable")
    return keys[order], payload.take(pa.array(order))
