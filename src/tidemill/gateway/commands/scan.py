"""`tidemill scan`: all items of a queue in the order of pops, or all rows of a log."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pyarrow as pa

import tidemill as tm
from tidemill.batch.frame import SEQ_FIELD, TIME_FIELD
from tidemill.files.readers.snapshot import checked_columns
from tidemill.gateway.arguments import (
    add_columns,
    add_fork,
    add_on_corruption,
    add_output,
    add_queue_or_log,
    key_range,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import is_log, start
from tidemill.gateway.opening import chosen_end, open_to_look
from tidemill.gateway.output import open_output
from tidemill.gateway.rows.limit import first_rows
from tidemill.limits import RECEIVED_ROWS_MAX
from tidemill.log.start import Start

DETAILS = """
Of a log, or of an archive by itself, all rows that are there now are printed in their order, from
--start on. It needs no consumer, and leaves none behind.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    if is_log(options.queue):
        _run_on_log(options, console)
        return
    if options.start is not None:
        raise tm.InvalidInput("--start is for logs: of a queue, --keys says which items")
    with open_to_look(options) as queue:
        end = chosen_end(queue, options)
        with end.scan(keys=options.keys, columns=options.columns) as reader:
            rows = len(end) if options.limit is None else options.limit
            with (
                open_output(options, console, reader.schema) as sink,
                console.progress("scanning") as progress,
            ):
                done = 0
                for batch in first_rows(reader, options.limit):
                    sink.write(batch)
                    done += batch.num_rows
                    # A range of keys may end much earlier; how much it holds is not known.
                    progress.show(done, done / rows if rows and options.keys is None else None)


def _run_on_log(options: argparse.Namespace, console: Console) -> None:
    if options.keys is not None or options.fork is not None:
        raise tm.InvalidInput("a log has neither keys nor forks: --start says where to begin")
    with tm.Log(options.queue, create=False) as log:
        # In this order, all rows in front of the end fit the schema.
        ends = log.ends()
        schema = log.schema.insert(0, TIME_FIELD).insert(0, SEQ_FIELD)
        names = checked_columns(options.columns, schema.names)
        schema = pa.schema([schema.field(name) for name in names])
        left = ends.next - ends.first if options.limit is None else options.limit
        with (
            open_output(options, console, schema) as sink,
            console.progress("scanning") as progress,
        ):
            done = 0
            for batch in first_rows(_rows(log, options.start or "earliest", ends.next), left):
                sink.write(batch.select(names))
                done += batch.num_rows
                progress.show(done, done / left if options.start is None else None)


def _rows(log: tm.Log, at: Start, end: int) -> Iterator[pa.RecordBatch]:
    while len(batch := log.read(at, RECEIVED_ROWS_MAX)) and batch.first_seq < end:
        yield batch.slice(0, end - batch.first_seq).to_arrow()
        at = batch.next_seq


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue_or_log(parser)
    parser.add_argument(
        "--keys",
        type=key_range,
        metavar="LOW:HIGH",
        help="keys in this range only, both ends included; either may be left out",
    )
    parser.add_argument(
        "--start",
        type=start,
        metavar="WHERE",
        help="of a log: from this row on, or this time with its zone (default: earliest)",
    )
    parser.add_argument("--limit", type=whole_number, metavar="N", help="at most so many rows")
    add_columns(parser)
    add_fork(parser)
    add_output(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="scan",
    summary="print all items of a queue, popping none, or all rows of a log",
    details=DETAILS,
    examples=(
        "tidemill scan spool/ --keys 0:100 --columns key,city --format csv",
        "tidemill scan spool/ --to everything.parquet",
        "tidemill scan spool/ --keys=-50: --limit 10 --json",
        "tidemill scan orders/ --start 2026-11-15T00:00:00Z --limit 10",
        "tidemill scan mysql://app@localhost/shop/orders --to orders.parquet",
    ),
    arguments=_arguments,
    run=run,
)
