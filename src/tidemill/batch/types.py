"""Which Arrow types a payload may have, and what the others become.

The accepted types are those that Arrow, Parquet and Spark all hold without loss, each in one form:

    bool  int8 int16 int32 int64  float32 float64  decimal128(precision, scale)
    utf8  binary  date32  timestamp[us] (wall clock)  timestamp[us, UTC] (instant)  duration[us]
    list<…>  struct<…>  map<…, …>

    given                                     becomes
    large and view types, fixed-size ones     the plain type
    dictionary, run-end encoded, extension    the type of the values
    uint8, uint16, uint32                     int16, int32, int64
    uint64                                    int64, if the values fit
    timestamp, duration of another unit       µs, unless that loses digits
    timestamp of another time zone            the same instants in UTC
    decimal32, decimal64, decimal256          decimal128, up to 38 digits

Nullability is kept for columns only: inside lists and structs everything may be null, as Python's
dicts and pandas have no way to promise otherwise.
"""

from __future__ import annotations

import pyarrow as pa

from tidemill.errors import SchemaMismatch
from tidemill.limits import SCHEMA_DEPTH_MAX

DECIMAL_DIGITS_MAX = 38
INSTANT = pa.timestamp("us", tz="UTC")
WALL_CLOCK = pa.timestamp("us")

_types = pa.types

_PLAIN = frozenset(
    [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.utf8(),
        pa.binary(),
        pa.date32(),
        WALL_CLOCK,
        INSTANT,
        pa.duration("us"),
    ]
)
_WIDENED = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),
    pa.large_utf8(): pa.utf8(),
    pa.string_view(): pa.utf8(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
_ADVICE = {
    pa.float16(): "cast it to float32",
    pa.date64(): "cast it to date32",
    pa.month_day_nano_interval(): "use a duration, or integers",
    pa.time32("s"): "use int32 seconds or a timestamp",
    pa.time32("ms"): "use int32 milliseconds or a timestamp",
    pa.time64("us"): "use int64 microseconds or a timestamp",
    pa.time64("ns"): "use int64 nanoseconds or a timestamp",
}


def normal_type(kind: pa.DataType, column: str, depth: int = 1) -> pa.DataType:
    """The accepted type that `kind` becomes, else an error that names the column and what to do.

    >>> normal_type(pa.dictionary(pa.int8(), pa.large_utf8()), "city")
    DataType(string)
    >>> normal_type(pa.float16(), "weight")
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: column 'weight' has the type halffloat, which Spark cannot \
hold: cast it to float32
    """
    if isinstance(kind, pa.BaseExtensionType):
        # First, for one that is defined in Python cannot, as a rule, be looked up in a set.
        return normal_type(kind.storage_type, column, depth + 1)
    if kind in _PLAIN:
        return kind
    if depth > SCHEMA_DEPTH_MAX:
        raise SchemaMismatch(f"column {column!r} is nested deeper than {SCHEMA_DEPTH_MAX} levels")
    widened = _WIDENED.get(kind)
    if widened is not None:
        return widened
    if _types.is_dictionary(kind) or _types.is_run_end_encoded(kind):
        return normal_type(kind.value_type, column, depth + 1)
    if _types.is_timestamp(kind):
        return WALL_CLOCK if kind.tz is None else INSTANT
    if _types.is_duration(kind):
        return pa.duration("us")
    if _types.is_fixed_size_binary(kind) and not _types.is_decimal(kind):
        return pa.binary()
    if _types.is_decimal(kind):
        return _normal_decimal(kind, column)
    if is_any_list(kind):
        return pa.list_(normal_type(kind.value_type, column, depth + 1))
    if _types.is_map(kind):
        return pa.map_(
            normal_type(kind.key_type, column, depth + 1),
            normal_type(kind.item_type, column, depth + 1),
        )
    if _types.is_struct(kind):
        return _normal_struct(kind, column, depth)
    if kind == pa.null():
        raise SchemaMismatch(
            f"column {column!r} has no type, for every value is null: declare the type in a schema"
        )
    advice = _ADVICE.get(kind, "convert it first")
    raise SchemaMismatch(
        f"column {column!r} has the type {kind}, which Spark cannot hold: {advice}"
    )


def is_any_list(kind: pa.DataType) -> bool:
    """Whether this is a list, large, fixed in size, a view or plain.

    >>> is_any_list(pa.list_view(pa.int8())), is_any_list(pa.map_(pa.utf8(), pa.int8()))
    (True, False)
    """
    return bool(
        _types.is_list(kind)
        or _types.is_large_list(kind)
        or _types.is_fixed_size_list(kind)
        or _types.is_list_view(kind)
        or _types.is_large_list_view(kind)
    )


def _normal_decimal(kind: pa.DataType, column: str) -> pa.DataType:
    if kind.precision > DECIMAL_DIGITS_MAX or not 0 <= kind.scale <= kind.precision:
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}, which Spark cannot hold: "
            f"use at most {DECIMAL_DIGITS_MAX} digits, and a scale from 0 to the number of digits"
        )
    return pa.decimal128(kind.precision, kind.scale)


def _normal_struct(kind: pa.DataType, column: str, depth: int) -> pa.DataType:
    names = [field.name for field in kind]
    if not names or not all(names) or len(set(names)) != len(names):
        raise SchemaMismatch(
            f"column {column!r} has the type {kind}: "
            "a struct needs fields, each with a name of its own"
        )
    return pa.struct(
        [pa.field(f.name, normal_type(f.type, f"{column}.{f.name}", depth + 1)) for f in kind]
    )


def fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of type `given` may go into a column of type `wanted`, both normal.

    Numbers may become wider or exact in another type; nothing else changes its meaning on the way.

    >>> fits(pa.int64(), pa.int16()), fits(pa.int64(), pa.float64()), fits(pa.utf8(), pa.binary())
    (True, True, False)
    """
    if given == wanted:
        return True
    if _types.is_integer(given):
        return bool(
            _types.is_integer(wanted) or _types.is_floating(wanted) or _types.is_decimal(wanted)
        )
    if given == pa.float32():
        return bool(wanted == pa.float64())
    if _types.is_decimal(given):
        return bool(_types.is_decimal(wanted))
    if _types.is_list(given) and _types.is_list(wanted):
        return fits(given.value_type, wanted.value_type)
    if _types.is_map(given) and _types.is_map(wanted):
        return fits(given.key_type, wanted.key_type) and fits(given.item_type, wanted.item_type)
    if _types.is_struct(given) and _types.is_struct(wanted):
        return [f.name for f in given] == [f.name for f in wanted] and all(
            fits(a.type, b.type) for a, b in zip(given, wanted, strict=True)
        )
    return False
