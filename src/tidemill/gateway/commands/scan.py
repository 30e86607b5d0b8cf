"""`tidemill scan`: all items in the order of pops, popping none."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import (
    add_columns,
    add_fork,
    add_on_corruption,
    add_output,
    add_queue,
    key_range,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_to_look
from tidemill.gateway.output import open_output
from tidemill.gateway.rows.limit import first_rows


def run(options: argparse.Namespace, console: Console) -> None:
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


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    parser.add_argument(
        "--keys",
        type=key_range,
        metavar="LOW:HIGH",
        help="keys in this range only, both ends included; either may be left out",
    )
    parser.add_argument("--limit", type=whole_number, metavar="N", help="at most so many rows")
    add_columns(parser)
    add_fork(parser)
    add_output(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="scan",
    summary="print all items in the order of pops, popping none",
    examples=(
        "tidemill scan spool/ --keys 0:100 --columns key,city --format csv",
        "tidemill scan spool/ --to everything.parquet",
        "tidemill scan spool/ --keys=-50: --limit 10 --json",
    ),
    arguments=_arguments,
    run=run,
)
