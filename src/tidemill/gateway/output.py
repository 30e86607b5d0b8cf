"""Where the rows of a command go, as its options say."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager

import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.gateway.console import Console
from tidemill.gateway.rows.sink import RowSink, open_sink


def open_output(
    options: argparse.Namespace, console: Console, schema: pa.Schema
) -> AbstractContextManager[RowSink]:
    """The sink that --to, --format, --binary and --json ask for."""
    chosen = options.format
    if chosen is None and options.to == "-" and console.is_json:
        chosen = "ndjson"
    return open_sink(options.to, chosen, schema, binary=options.binary, overwrite=options.overwrite)


def check_columns(names: Sequence[str] | None, schema: pa.Schema) -> None:
    """Refuse the name of a column that is not there."""
    for name in names or ():
        if name not in schema.names:
            known = ", ".join(schema.names)
            raise InvalidInput(f"there is no column {name!r}; there are {known}")


def chosen_columns(batch: pa.RecordBatch, names: Sequence[str] | None) -> pa.RecordBatch:
    """The columns asked for, in that order; all without a list.

    >>> chosen_columns(pa.record_batch({"a": [1], "b": [2]}), ["b"]).schema.names
    ['b']
    """
    check_columns(names, batch.schema)
    return batch if names is None else batch.select(list(names))
