"""Rows as a table for people; what programs read is NDJSON, CSV or Parquet."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.gateway.console import table
from tidemill.shown import printable

_CELL_LENGTH_MAX = 60


def render(batch: pa.RecordBatch) -> str:
    """The rows side by side, long cells cut short.

    >>> print(render(pa.record_batch({"key": [1, 20], "value": [b"a", b"\\xff"]})))
    key  value
      1  a
     20  \\xff
    """
    texts = [_cells(column) for column in batch.columns]
    return table(batch.schema.names, list(zip(*texts, strict=True)))


def _cells(column: pa.Array) -> list[str]:
    kind = column.type
    if pa.types.is_temporal(kind) and not pa.types.is_duration(kind):
        # Arrow knows every time; Python's end with the year 9999.
        return [_cell(value) for value in column.cast(pa.utf8()).to_pylist()]
    return [_cell(value) for value in column.to_pylist()]


def _cell(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bytes):
        value = value.decode(errors="backslashreplace")
    text = str(value)
    text = printable(text)
    return text if len(text) <= _CELL_LENGTH_MAX else text[: _CELL_LENGTH_MAX - 1] + "…"
