"""Tabular data as keys and payload: Arrow, and whatever hands itself over as Arrow."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemill.batch.columns import normalise_columns
from tidemill.batch.frame import KEY_FIELD, SEQ_FIELD, TIME_FIELD
from tidemill.batch.keys import Keys, keys_from_array
from tidemill.batch.schema import check_payload_schema, default_if_plain, only_column
from tidemill.batch.sizes import check_rows
from tidemill.errors import InvalidKey, SchemaMismatch, TidemillError, TooLarge
from tidemill.limits import BATCH_BYTES_MAX, MIB
from tidemill.shown import shown

KeysAndPayload = tuple[Keys | None, pa.RecordBatch]


def from_batch(batch: pa.RecordBatch, schema: pa.Schema | None, key: str | None) -> KeysAndPayload:
    """The keys and the payload of a record batch.

    >>> from_batch(pa.record_batch({"key": [2], "n": [5]}), None, None)[1].to_pylist()
    [{'n': 5}]
    """
    try:
        # What is pushed must come back, and a body that is not valid through and through does not.
        batch.validate(full=True)
    except pa.ArrowException as cause:
        raise SchemaMismatch(f"{_invalid(batch)} is not valid Arrow: {cause}") from cause
    given = batch.schema
    if given.get_field_index(SEQ_FIELD.name) == 0:
        if _begins_with(given, (SEQ_FIELD, KEY_FIELD, TIME_FIELD)):
            batch = batch.remove_column(2).remove_column(0)
        elif _begins_with(given, (SEQ_FIELD, TIME_FIELD)):
            batch = batch.remove_column(1).remove_column(0)
        given = batch.schema
    name = KEY_FIELD.name if key is None else key
    index = given.get_field_index(name)
    keys = None
    if index >= 0:
        keys = keys_from_array(batch.column(index))
        if not stays(name, schema):
            batch = batch.remove_column(index)
    elif key is not None:
        raise InvalidKey(
            f"there is no column {shown(key)} to take the keys from; "
            f"there are {listed(given.names)}"
        )
    if schema is None:
        has_nulls = batch.num_columns == 1 and batch.column(0).null_count > 0
        schema = default_if_plain(check_payload_schema(batch.schema), has_nulls=has_nulls)
    return keys, normalise_columns(batch, schema)


def _invalid(batch: pa.RecordBatch) -> str:
    """The first column that is not valid, by its name."""
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException:
            return f"column {shown(name)}"
    return "the table"


def _begins_with(schema: pa.Schema, ours: tuple[pa.Field, ...]) -> bool:
    """Whether these are the columns that a queue or a log gave; a user's own `time` looks
    different.
    """
    return len(schema) >= len(ours) and all(
        found.name == field.name and found.type == field.type
        for found, field in zip(schema, ours, strict=False)
    )


def stays(name: str, schema: pa.Schema | None) -> bool:
    """Whether the column that keys are taken from is a payload column as well.

    >>> stays("key", None), stays("ts", None), stays("ts", pa.schema([("n", pa.int8())]))
    (False, True, False)
    """
    if name == KEY_FIELD.name:
        return False
    return schema is None or schema.get_field_index(name) >= 0


def listed(names: Sequence[object]) -> str:
    """Names for a message.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    return ", ".join(repr(name) for name in names)


def from_foreign(data: Any, schema: pa.Schema | None, key: str | None) -> KeysAndPayload | None:
    """The keys and the payload of a table of any make; None if it is no table.

    >>> from_foreign(pa.table({"n": [5]}), None, None)[1].num_rows
    1
    >>> from_foreign([], None, None) is None
    True
    """
    if isinstance(data, pa.Table):
        return from_batch(_one_batch(data), schema, key)
    pandas = sys.modules.get("pandas")
    try:
        if pandas is not None and isinstance(data, pandas.DataFrame):
            # The index is bookkeeping, not data, and as a column pandas would choose its name.
            table = pa.Table.from_pandas(data, preserve_index=False)
            return from_batch(_one_batch(table), schema, key)
        if isinstance(data, (pa.Array, pa.ChunkedArray)):
            return from_batch(_from_array(data, schema), schema, key)
        if hasattr(data, "__arrow_c_stream__"):
            return from_batch(_from_stream(data, schema), schema, key)
        if hasattr(data, "__arrow_c_array__"):
            return from_batch(_from_array(pa.array(data), schema), schema, key)
    except TidemillError:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as cause:
        raise SchemaMismatch(f"Arrow cannot take this {type(data).__name__}: {cause}") from cause
    return None


def _from_array(data: pa.Array | pa.ChunkedArray, schema: pa.Schema | None) -> pa.RecordBatch:
    """Structs as the columns they are made of; anything else as the only column."""
    array = _one_array(data) if isinstance(data, pa.ChunkedArray) else data
    if pa.types.is_struct(array.type):
        return pa.RecordBatch.from_struct_array(array)
    return pa.RecordBatch.from_arrays([array], [only_column(schema).name])


def _from_stream(data: Any, schema: pa.Schema | None) -> pa.RecordBatch:
    """All batches of a stream, which may be without end: so the bounds are checked on the way."""
    try:
        reader = pa.RecordBatchReader.from_stream(data)
    except pa.ArrowInvalid:
        # No rows, but a column by itself, such as a Series of polars.
        return _from_array(pa.chunked_array(data), schema)
    batches = []
    rows = size = 0
    for batch in reader:
        batches.append(batch)
        rows += batch.num_rows
        size += _bytes_of(batch)
        check_rows(rows)
        _check_bytes(size)
    return _one_batch(pa.Table.from_batches(batches, reader.schema))


def _one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table's rows as one batch, copied only if they are in several pieces."""
    check_rows(table.num_rows)
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    _check_bytes(_bytes_of(table))
    return pa.RecordBatch.from_arrays(
        [_one_array(column) for column in table.columns], schema=table.schema
    )


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _bytes_of(rows: pa.RecordBatch | pa.Table) -> int:
    """How much rows hold. Before version 24 pyarrow cannot tell where there are views, as in what
    comes from polars; then all that lies behind the views counts.
    """
    try:
        return rows.nbytes
    except pa.ArrowTypeError:
        return rows.get_total_buffer_size()


def _check_bytes(size: int) -> None:
    if size > BATCH_BYTES_MAX:
        raise TooLarge(f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB: push in parts")
