"""Where the rows of a command go, as its options say."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager

import pyarrow as pa

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
