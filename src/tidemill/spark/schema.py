"""Columns as Spark has them: seq, key, time, then the payload's."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from tidemill.errors import SchemaMismatch


def spark_schema(columns: pa.Schema) -> StructType:
    """Spark's schema for columns of ours."""
    return from_arrow_schema(columns)


def check_distinct(names: Iterable[str], whose: str, remedy: str) -> None:
    """Raise if two names differ in case alone: Spark would not know which of them is meant."""
    known: dict[str, str] = {}
    for name in names:
        other = known.setdefault(name.lower(), name)
        if other != name:
            raise SchemaMismatch(
                f"{whose} the columns {other!r} and {name!r}, which Spark does not tell apart: "
                f"{remedy}"
            )


class Shape:
    """The columns that a query has, whatever the queue has gained since.

    Arrow types that Spark names differently (the elements of a list) are renamed, without a copy.
    """

    def __init__(self, schema: StructType) -> None:
        self._arrow = to_arrow_schema(schema, timezone="UTC")

    @property
    def names(self) -> list[str]:
        return list(self._arrow.names)

    def check(self, columns: pa.Schema, place: str) -> None:
        """Raise unless the queue has every column, in its type."""
        known = to_arrow_schema(spark_schema(columns), timezone="UTC")
        for field in self._arrow:
            index = known.get_field_index(field.name)
            if index < 0:
                raise SchemaMismatch(
                    f"{place} has no column {field.name!r}; it has {', '.join(known.names)}"
                )
            if not known.field(index).type.equals(field.type):
                raise SchemaMismatch(
                    f"column {field.name!r} of {place} is {known.field(index).type}, "
                    f"and the query wants {field.type}"
                )

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the query's columns, in its types."""
        if batch.schema.equals(self._arrow):
            return batch
        columns = []
        for field in self._arrow:
            index = batch.schema.get_field_index(field.name)
            if index < 0:
                # Written before the column was there.
                columns.append(pa.nulls(batch.num_rows, field.type))
                continue
            column = batch.column(index)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._arrow)
