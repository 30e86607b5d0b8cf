"""Payload schemas: which are accepted, how they are written down, and their fingerprint.

A schema is kept as a description of our own in JSON, not as Arrow's bytes: those may change from
release to release, and the fingerprint in every frame header must not.

    [{"name": "id", "type": "int64", "nullable": false},
     {"name": "tags", "type": {"list": "utf8"}, "nullable": true}]
"""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tidemill.batch.types import INSTANT, WALL_CLOCK, normal_type
from tidemill.errors import Bug, Corrupt, SchemaMismatch
from tidemill.limits import SCHEMA_BYTES_MAX, SCHEMA_COLUMNS_MAX
from tidemill.shown import shown

RESERVED = ("seq", "key", "time")

# The payload of a queue that declares none. Plain bytes have no null: None is a mistake.
DEFAULT = pa.schema([pa.field("value", pa.binary(), nullable=False)])

_NAMES = {
    pa.bool_(): "bool",
    pa.int8(): "int8",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.utf8(): "utf8",
    pa.binary(): "binary",
    pa.date32(): "date32",
    WALL_CLOCK: "timestamp[us]",
    INSTANT: "timestamp[us, UTC]",
    pa.duration("us"): "duration[us]",
}
_BY_NAME = {name: kind for kind, name in _NAMES.items()}
_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}), ([0-9]{1,2})\)", re.ASCII)


def check_payload_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as a queue records it: types in their normal form, no metadata.

    >>> check_payload_schema(pa.schema([("n", pa.uint16()), ("who", pa.large_utf8())]))
    n: int32
    who: string
    >>> check_payload_schema(pa.schema([pa.field("time", pa.int64())]))
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: column 'time' has a reserved name: rename it
    """
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(f"a schema must be a pyarrow.Schema, not {type(schema).__name__}")
    names = schema.names
    if not names:
        raise SchemaMismatch("a payload needs at least one column")
    if len(names) > SCHEMA_COLUMNS_MAX:
        raise SchemaMismatch(
            f"a payload has at most {SCHEMA_COLUMNS_MAX} columns, not {len(names)}"
        )
    for name in names:
        if name in RESERVED:
            raise SchemaMismatch(f"column {name!r} has a reserved name: rename it")
        if not name:
            raise SchemaMismatch("a column has an empty name: name it")
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaMismatch(f"column {twice[0]!r} is there more than once: rename one of them")
    normal = pa.schema(
        [pa.field(f.name, normal_type(f.type, f.name), nullable=f.nullable) for f in schema]
    )
    if len(_canonical(normal)) > SCHEMA_BYTES_MAX:
        raise SchemaMismatch(f"a schema takes at most {SCHEMA_BYTES_MAX} bytes: shorten its names")
    return normal


def default_if_plain(schema: pa.Schema, *, has_nulls: bool) -> pa.Schema:
    """`DEFAULT` for data that is plain bytes without nulls, else the schema inferred for it.

    Arrow columns are nullable unless somebody cared, so without this a queue's payload would depend
    on whether its first rows came as pairs or as a table.

    >>> default_if_plain(pa.schema([("value", pa.binary())]), has_nulls=False) is DEFAULT
    True
    """
    if has_nulls or schema.names != DEFAULT.names or schema.types != DEFAULT.types:
        return schema
    return DEFAULT


def only_column(schema: pa.Schema | None) -> pa.Field:
    """The column that plain values go into; None stands for `DEFAULT`.

    >>> only_column(None).name
    'value'
    """
    if schema is None:
        return DEFAULT.field(0)
    if len(schema) != 1:
        names = ", ".join(repr(name) for name in schema.names)
        raise SchemaMismatch(f"the queue has the columns {names}: push dicts or a table")
    return schema.field(0)


def describe(schema: pa.Schema) -> list[dict[str, Any]]:
    """The schema as plain data for JSON; `schema` is in normal form.

    >>> describe(DEFAULT)
    [{'name': 'value', 'type': 'binary', 'nullable': False}]
    """
    return [
        {"name": field.name, "type": _describe_type(field.type), "nullable": field.nullable}
        for field in schema
    ]


def _describe_type(kind: pa.DataType) -> Any:
    name = _NAMES.get(kind)
    if name is not None:
        return name
    if pa.types.is_decimal128(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_map(kind):
        return {"map": [_describe_type(kind.key_type), _describe_type(kind.item_type)]}
    if pa.types.is_list(kind):
        return {"list": _describe_type(kind.value_type)}
    if pa.types.is_struct(kind):
        return {"struct": [[field.name, _describe_type(field.type)] for field in kind]}
    raise Bug(f"the type {kind} is not in normal form")


def from_description(description: object) -> pa.Schema:
    """The schema that `describe` described; anything else is `Corrupt`.

    >>> from_description(describe(DEFAULT)) == DEFAULT
    True
    """
    if not isinstance(description, list):
        raise Corrupt("a stored schema is no list of columns")
    try:
        schema = pa.schema([_field(column) for column in description])
        normal = check_payload_schema(schema)
    except (SchemaMismatch, pa.ArrowException, ValueError, TypeError, RecursionError) as cause:
        raise Corrupt(f"a stored schema is not one we wrote: {cause}") from cause
    if not normal.equals(schema):
        raise Corrupt("a stored schema is not in its normal form")
    return normal


def _field(column: object) -> pa.Field:
    if not isinstance(column, dict) or column.keys() != {"name", "type", "nullable"}:
        raise ValueError("a column has a name, a type and a nullable")
    if not isinstance(column["name"], str) or not isinstance(column["nullable"], bool):
        raise ValueError("a column's name is a string, its nullable a boolean")
    return pa.field(column["name"], _type(column["type"]), nullable=column["nullable"])


def _type(description: object) -> pa.DataType:
    match description:
        case str():
            kind = _BY_NAME.get(description)
            if kind is not None:
                return kind
            decimal = _DECIMAL.fullmatch(description)
            if decimal is not None:
                return pa.decimal128(int(decimal[1]), int(decimal[2]))
        case {"list": item, **rest} if not rest:
            return pa.list_(_type(item))
        case {"map": [key, item], **rest} if not rest:
            return pa.map_(_type(key), _type(item))
        case {"struct": [*fields], **rest} if not rest:
            return pa.struct([_child(child) for child in fields])
    raise ValueError(f"{shown(description)} is no type: use {', '.join(_BY_NAME)}, decimal(P, S)")


def _child(child: object) -> pa.Field:
    match child:
        case [str(name), kind]:
            return pa.field(name, _type(kind))
    raise ValueError("a field of a struct is a name and a type")


def _canonical(schema: pa.Schema) -> bytes:
    return json.dumps(describe(schema), sort_keys=True, separators=(",", ":")).encode("ascii")


def fingerprint(schema: pa.Schema) -> int:
    """A stable 64-bit name for a schema, for frame headers: a hash of names, types and nullability.

    >>> hex(fingerprint(DEFAULT))
    '0x5be63501f99a9608'
    """
    return xxh3_64_intdigest(_canonical(schema))
