"""`tidemill pop`: the items with the least keys, out of the queue."""

from __future__ import annotations

import argparse

import tidemill as tm
from tidemill.gateway.arguments import (
    Positional,
    add_fork,
    add_output,
    add_queue,
    add_sync,
    key,
    seconds,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, count
from tidemill.gateway.opening import chosen_end, open_queue
from tidemill.gateway.output import open_output
from tidemill.gateway.refusal import Stopped

DETAILS = """
The items are popped after the output was written and flushed, and after it is on disk if it is a
file. A full disk or a broken pipe pops nothing.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    with open_queue(options) as queue:
        end = chosen_end(queue, options)
        rows = written = 0
        try:
            with end.read(
                -1 if options.all else options.n, key_max=options.key_max, wait_s=options.wait_s
            ) as read:
                batch = read.batch.to_arrow()
                with open_output(options, console, batch.schema) as sink:
                    sink.write(batch)
                rows = written = batch.num_rows
        except (tm.TidemillError, KeyboardInterrupt) as error:
            if not written:
                raise
            words = f"the output has {count(written, 'item')} that are still in the queue"
            raise Stopped(error, words, {"written": written, "popped": 0}) from error
    if options.to != "-":
        words = f"popped {count(rows, 'item')} to {options.to}"
        console.result(words, {"popped": rows, "to": options.to})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(
        parser,
        Positional("n", "how many; default: 1", whole_number, is_required=False, default=1),
    )
    parser.add_argument("--all", action="store_true", help="everything there is")
    parser.add_argument("--key-max", type=key, metavar="KEY", help="leave greater keys alone")
    parser.add_argument(
        "--wait-s", type=seconds, metavar="SECONDS", help="wait so long for the first item"
    )
    add_fork(parser)
    add_output(parser)
    add_sync(parser)


COMMAND = Command(
    name="pop",
    summary="take the items with the least keys out of the queue",
    details=DETAILS,
    examples=(
        "tidemill pop spool/ 1000 --to out.parquet",
        "tidemill pop spool/ 10 --json | jq .value",
        "tidemill pop spool/ --all --fork audit --format csv > audit.csv",
        "tidemill pop jobs/ 1 --key-max 5 --wait-s 60",
    ),
    arguments=_arguments,
    run=run,
)
