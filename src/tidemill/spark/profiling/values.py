"""Columns as numbers, bytes and hashes, in expressions that Spark computes by itself."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    IntegralType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from tidemill.errors import InvalidInput

UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}  # in µs; ns are divided
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TEXTS = (StringType, CharType, VarcharType, BinaryType)
_TIMES = (TimestampType, TimestampNTZType)
_SHOWN = 64  # of the first characters of a text that are compared and shown


def quoted(name: str) -> str:
    """The name of a column, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def is_nested(kind: DataType) -> bool:
    """Whether values have parts."""
    return isinstance(kind, (ArrayType, MapType, StructType))


def size(field: StructField) -> Column:
    """The bytes that a value takes."""
    column = F.col(quoted(field.name))
    kind = field.dataType
    if isinstance(kind, _TEXTS):
        length = F.octet_length(column)
    elif is_nested(kind):
        length = F.octet_length(hashed(field))
    else:
        length = F.when(column.isNotNull(), F.lit(_width(kind)))
    return F.coalesce(length, F.lit(0)).cast("long")


def compared(field: StructField) -> Column | None:
    """What tells the least and the greatest value; None if the type has no order."""
    column = F.col(quoted(field.name))
    if is_nested(field.dataType):
        return None
    # The first characters of the least text are the least first characters.
    return F.substring(column, 1, _SHOWN) if isinstance(field.dataType, _TEXTS) else column


def hashed(field: StructField) -> Column:
    """A value that hashes as it differs: one with parts as a text, for Spark passes over nulls in
    them, and has no hash of a map.
    """
    column = F.col(quoted(field.name))
    if not is_nested(field.dataType):
        return column
    text = F.to_json(F.struct(column), {"ignoreNullFields": "false"})
    return F.when(column.isNotNull(), text)


def hashes(fields: list[StructField]) -> list[Column]:
    """96 bits that tell one payload from another; a null counts as itself, wherever it is."""
    values = [hashed(field) for field in fields]
    flags = [F.col(quoted(field.name)).isNull() for field in fields]
    return [F.xxhash64(*values, *flags).alias("_one"), F.hash(*values, *flags).alias("_other")]


def as_number(field: StructField) -> tuple[Column, bool]:
    """A column as whole numbers, and whether these are times in µs."""
    column = F.col(quoted(field.name))
    if isinstance(field.dataType, IntegralType):
        return column.cast("long"), False
    if isinstance(field.dataType, _TIMES):
        return F.unix_micros(column.cast("timestamp")), True
    raise InvalidInput(
        f"column {field.name!r} is {field.dataType.simpleString()}: keys are whole numbers or times"
    )


def as_time(field: StructField, unit: str) -> Column:
    """A column as µs since 1970; what is beyond all times is null."""
    number, is_time = as_number(field)
    if is_time:
        return number
    if unit == "ns":
        return F.floor(number / 1_000).cast("long")
    return F.try_multiply(number, F.lit(UNITS[unit]))


def brought(field: StructField, value: Column) -> Column:
    """What `compared` has found, for the driver. Python has not all times, and PySpark would give
    those of a zone by the clock of this machine.
    """
    if isinstance(field.dataType, TimestampType):
        return F.unix_micros(value)
    if isinstance(field.dataType, (TimestampNTZType, DateType)):
        return F.replace(value.cast("string"), F.lit(" "), F.lit("T"))
    return value


def shown(value: Any, field: StructField) -> str | None:
    """A value as a text."""
    if value is None:
        return None
    if isinstance(field.dataType, TimestampType):
        try:
            return (_EPOCH + timedelta(microseconds=value)).isoformat()
        except OverflowError:
            return f"{value:,} µs since 1970"
    if isinstance(value, (bytes, bytearray)):
        return "0x" + bytes(value).hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, timedelta):
        return str(value)
    return repr(value) if isinstance(value, float) else str(value)


def _width(kind: DataType) -> int:
    if isinstance(kind, (BooleanType, ByteType)):
        return 1
    if isinstance(kind, ShortType):
        return 2
    if isinstance(kind, (IntegerType, FloatType, DateType)):
        return 4
    return 16 if isinstance(kind, DecimalType) else 8
