"""`tidemill pop`: the items with the least keys, out of the queue."""

from __future__ import annotations

import argparse
from typing import TypeAlias

import tidemill as tm
from tidemill.files.report import counted
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
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_queue
from tidemill.gateway.output import open_output
from tidemill.gateway.refusal import Stopped
from tidemill.gateway.rows.limit import first_rows
from tidemill.limits import WINDOW_ROWS

End: TypeAlias = tm.PriorityQueue | tm.Fork

DETAILS = """
The items are popped after the output was written and flushed, and after it is on disk if it is a
file. A full disk or a broken pipe pops nothing.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    with open_queue(options) as queue:
        end = chosen_end(queue, options)
        wanted = len(end) if options.all else options.n
        if options.wait_s is not None and wanted:
            end.peek(1, key_max=options.key_max, wait_s=options.wait_s)
        pop = _pop_at_once if wanted <= WINDOW_ROWS else _pop_in_pieces
        rows = pop(end, wanted, options, console)
    if options.to != "-":
        words = f"popped {counted(rows, 'item')} to {options.to}"
        console.result(words, {"popped": rows, "to": options.to})


def _pop_at_once(end: End, wanted: int, options: argparse.Namespace, console: Console) -> int:
    written = 0
    try:
        with end.read(wanted, key_max=options.key_max) as read:
            batch = read.batch.to_arrow()
            with open_output(options, console, batch.schema) as sink:
                sink.write(batch)
            written = batch.num_rows
    except (tm.TidemillError, KeyboardInterrupt) as error:
        raise _stopped(error, written, 0) from error
    return written


def _pop_in_pieces(end: End, wanted: int, options: argparse.Namespace, console: Console) -> int:
    """More than a read should hold in memory: all of it is written first, then popped piece by
    piece. The folder is ours meanwhile, so that nobody can push in between.
    """
    pieces: list[int] = []
    with (
        end.scan(keys=(None, options.key_max)) as reader,
        open_output(options, console, reader.schema) as sink,
        console.progress("writing") as progress,
    ):
        for batch in first_rows(reader, wanted):
            sink.write(batch)
            pieces.append(batch.num_rows)
            progress.show(sum(pieces), sum(pieces) / min(wanted, len(end)))
    written, popped = sum(pieces), 0
    try:
        if written == len(end):
            return end.clear()
        with console.progress("popping") as progress:
            for rows in pieces:
                popped += len(end.pop(rows))
                progress.show(popped, popped / written)
    except (tm.TidemillError, KeyboardInterrupt) as error:
        raise _stopped(error, written, popped) from error
    return popped


def _stopped(error: BaseException, written: int, popped: int) -> BaseException:
    if not written:
        return error
    words = f"the output has {counted(written, 'item')}, the last {written - popped:,} of which are"
    return Stopped(error, f"{words} still in the queue", {"written": written, "popped": popped})


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
