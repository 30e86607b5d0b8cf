"""`tidemill peek`: what a pop would take, left where it is."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import (
    Positional,
    add_columns,
    add_fork,
    add_on_corruption,
    add_output,
    add_queue,
    key,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_to_look
from tidemill.gateway.output import open_output
from tidemill.gateway.rows.limit import first_rows


def run(options: argparse.Namespace, console: Console) -> None:
    with (
        open_to_look(options) as queue,
        chosen_end(queue, options).scan(
            keys=(None, options.key_max), columns=options.columns
        ) as reader,
        open_output(options, console, reader.schema) as sink,
    ):
        for batch in first_rows(reader, options.n):
            sink.write(batch)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(
        parser,
        Positional("n", "how many; default: 1", whole_number, is_required=False, default=1),
    )
    parser.add_argument("--key-max", type=key, metavar="KEY", help="leave greater keys alone")
    add_columns(parser)
    add_fork(parser)
    add_output(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="peek",
    summary="show the items that a pop would take",
    examples=(
        "tidemill peek spool/",
        "tidemill peek spool/ 10 --json",
        "tidemill peek spool/ 100 --fork audit --columns key,city --format csv",
    ),
    arguments=_arguments,
    run=run,
)
