"""Columns as they are given, brought into the schema of a queue.

What is done to a column is fixed by its type (see `types`); this module does it to values, and
says which column and why when a value cannot be kept: an unsigned number too large, a timestamp
with more digits than µs, a null where none may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.types import fits, normal_type
from tidemill.batch.wrappings import unwrapped
from tidemill.errors import SchemaMismatch
from tidemill.limits import SCHEMA_DEPTH_MAX

_types = pa.types

# What values mostly are, none of which holds others.
_FLAT = {NoneType, bool, int, float, str, bytes, datetime, date, time, timedelta, Decimal}
_CONTAINERS = (list, tuple, Mapping, Set, ValuesView, np.ndarray)


def normalise_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with exactly the columns of `schema`, found by name; nullable ones may be missing.

    >>> given = pa.record_batch({"n": pa.array([1, 2], pa.uint8())})
    >>> normalise_columns(given, pa.schema([("n", pa.int16()), ("note", pa.utf8())])).to_pylist()
    [{'n': 1, 'note': None}, {'n': 2, 'note': None}]
    >>> normalise_columns(given, pa.schema([("m", pa.int16())]))
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: the payload has no column 'n'; its columns are 'm'
    """
    given = batch.schema
    if given.equals(schema):
        if given.metadata is not None:
            batch = batch.replace_schema_metadata(None)
    else:
        names = given.names
        if names != schema.names:
            _check_names(names, schema)
        arrays = [
            normalise_column(batch.column(field.name), field)
            if field.name in names
            else _missing(field, batch.num_rows)
            for field in schema
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    for index, field in enumerate(schema):
        if not field.nullable:
            array = batch.column(index)
            if array.null_count:
                row = first_null(array)
                raise SchemaMismatch(f"column {field.name!r} may not be null, but row {row} is")
    return batch


def _check_names(names: Sequence[str], schema: pa.Schema) -> None:
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatch(f"column {twice[0]!r} is there more than once: rename one of them")
    for name in names:
        if schema.get_field_index(name) < 0:
            known = ", ".join(repr(known) for known in schema.names)
            raise SchemaMismatch(f"the payload has no column {name!r}; its columns are {known}")


def _missing(field: pa.Field, rows: int) -> pa.Array:
    if not field.nullable:
        raise SchemaMismatch(f"column {field.name!r} is missing and may not be null")
    return pa.nulls(rows, field.type)


def first_null(array: pa.Array) -> int:
    """The first row that is null.

    >>> first_null(pa.array([1, None]))
    1
    """
    index: int = array.is_null().index(True).as_py()
    return index


def normalise_column(array: pa.Array, field: pa.Field) -> pa.Array:
    """The array in the type of `field`, by the rules of `types`; nulls are the caller's concern.

    >>> normalise_column(pa.array([1, 2**40]), pa.field("n", pa.int32()))
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: column 'n' does not fit int32: Integer value 1099511627776 \
not in range: -2147483648 to 2147483647
    """
    wanted = field.type
    if array.type.equals(wanted):
        return array
    if array.null_count == len(array):
        return pa.nulls(len(array), wanted)
    kind = normal_type(array.type, field.name)
    if not fits(kind, wanted):
        raise SchemaMismatch(
            f"column {field.name!r} is {wanted} in the queue, but {array.type} was given"
            + _hint(kind, wanted)
        )
    try:
        found = unwrapped(array).cast(wanted, safe=True)
        found.validate(full=True)
    except pa.ArrowException as cause:
        raise SchemaMismatch(f"column {field.name!r} does not fit {wanted}: {cause}") from cause
    return found


def _hint(kind: pa.DataType, wanted: pa.DataType) -> str:
    if _types.is_string(kind) and _types.is_binary(wanted):
        return ": encode it, as in text.encode()"
    if _types.is_binary(kind) and _types.is_string(wanted):
        return ": decode it, as in data.decode()"
    if _types.is_timestamp(kind) and _types.is_timestamp(wanted):
        if wanted.tz is None:
            return ": the queue holds wall-clock times, so take the time zone off first"
        return ": naive times have no place on the clock, so give them a time zone"
    if _types.is_floating(kind) and (_types.is_floating(wanted) or _types.is_integer(wanted)):
        return ": cast it first if losing digits is meant"
    return ""


def column_from_values(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Python objects as a column in the type of `field`.

    Arrow is first asked what the values are, because told what they should be it would encode
    strings, take naive times for UTC and drop the unknown fields of nested dicts.

    >>> column_from_values([1, None, 3], pa.field("n", pa.int16())).type
    DataType(int16)
    """
    wanted = field.type
    check_depth(values, field.name)
    try:
        if _holds_map(wanted):
            # A dict can be a struct as well as a map, so for these there is no guessing.
            return pa.array(values, wanted)
        if _types.is_binary(wanted) and str in set(map(type, values)):
            raise SchemaMismatch(
                f"column {field.name!r} holds bytes, not str: encode it, as in text.encode()"
            )
        array = pa.array(values)
        if array.type.equals(wanted):
            return array
        if wanted == pa.float32() and array.type == pa.float64():
            return array.cast(wanted)  # A Python float is a double only for want of another.
        if _types.is_nested(wanted) and _within(array.type, wanted, field.name):
            return pa.array(values, wanted)
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as cause:
        if isinstance(cause, SchemaMismatch):
            raise
        raise SchemaMismatch(f"column {field.name!r} does not fit {wanted}: {cause}") from cause
    return normalise_column(array, field)


def check_depth(values: Sequence[Any], column: str) -> None:
    """Raise if the values are nested deeper than any type may be: Arrow goes down into lists and
    dicts for as long as there are any, and ends the process if one holds itself.

    >>> endless = []
    >>> endless.append(endless)
    >>> check_depth([endless], "n")
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: column 'n' is nested deeper than 32 levels
    """
    level: list[Any] = [values]
    for _ in range(SCHEMA_DEPTH_MAX + 2):
        kinds = set(map(type, _items(level)))
        if kinds <= _FLAT:
            return
        holding = {kind for kind in kinds - _FLAT if issubclass(kind, _CONTAINERS)}
        # Each of them once, however often it is there.
        found = {id(item): item for item in _items(level) if type(item) in holding}
        level = list(found.values())
    raise SchemaMismatch(f"column {column!r} is nested deeper than {SCHEMA_DEPTH_MAX} levels")


def _items(containers: list[Any]) -> Iterable[Any]:
    """What several containers hold, of dicts the values."""
    return chain.from_iterable(_held_by(one) for one in containers)


def _held_by(one: Any) -> Iterable[Any]:
    # What is in them, not what a class of the caller's says is: that is what Arrow looks at.
    if isinstance(one, list):
        return list.__iter__(one)
    if isinstance(one, tuple):
        return tuple.__iter__(one)
    if isinstance(one, dict):
        return dict.values(one)
    if isinstance(one, np.ndarray) and (not one.ndim or not one.dtype.hasobject):
        return ()  # numbers
    return one.values() if isinstance(one, Mapping) else one


def _holds_map(kind: pa.DataType) -> bool:
    return _types.is_map(kind) or any(
        _holds_map(kind.field(index).type) for index in range(kind.num_fields)
    )


def _within(kind: pa.DataType, wanted: pa.DataType, column: str) -> bool:
    """Like `fits`, but Python rows may leave fields of a struct out, or have nothing but nulls."""
    if _types.is_null(kind):
        return True
    if _types.is_struct(kind) and _types.is_struct(wanted):
        return all(
            wanted.get_field_index(child.name) >= 0
            and _within(child.type, wanted.field(child.name).type, column)
            for child in kind
        )
    if _types.is_list(kind) and _types.is_list(wanted):
        return _within(kind.value_type, wanted.value_type, column)
    return fits(normal_type(kind, column), wanted) or (
        wanted == pa.float32() and kind == pa.float64()
    )
