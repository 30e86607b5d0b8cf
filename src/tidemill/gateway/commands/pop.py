"""`tidemill pop`: the items with the least keys, out of the queue."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

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
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.opening import chosen_end, open_queue, open_to_look
from tidemill.gateway.output import open_output
from tidemill.gateway.refusal import Stopped
from tidemill.gateway.rows.limit import first_rows
from tidemill.limits import WINDOW_ROWS
from tidemill.shown import counted

End: TypeAlias = tm.PriorityQueue | tm.Fork

DETAILS = """
The items are popped after the output was written and flushed, and after it is on disk if it is a
file. A full disk or a broken pipe pops nothing.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    waits = options.wait_s is not None and (options.all or options.n)
    with _opened_when_due(options) if waits else open_queue(options) as queue:
        end = chosen_end(queue, options)
        wanted = len(end) if options.all else options.n
        with Interrupts() as interrupts:
            popping = Popping(end, options, console, interrupts)
            rows = popping.at_once(wanted) if wanted <= WINDOW_ROWS else popping.in_pieces(wanted)
    if options.to != "-":
        words = f"popped {counted(rows, 'item')} to {options.to}"
        console.result(words, {"popped": rows, "to": options.to})


@contextmanager
def _opened_when_due(options: argparse.Namespace) -> Iterator[tm.PriorityQueue]:
    """The queue, once it has something to pop, or the wait is over. The folder is nobody's while
    it waits, so that others can push.
    """
    deadline_s = time.monotonic() + options.wait_s
    left_s = options.wait_s
    while True:
        with open_to_look(options) as queue:
            chosen_end(queue, options).peek(1, key_max=options.key_max, wait_s=left_s)
        left_s = max(0.0, deadline_s - time.monotonic())
        with open_queue(options) as queue:
            # Somebody else may have popped it meanwhile.
            if not left_s or len(chosen_end(queue, options).peek(1, key_max=options.key_max)):
                yield queue
                return


class Popping:
    """Writes items, and then pops them."""

    def __init__(
        self,
        end: End,
        options: argparse.Namespace,
        console: Console,
        interrupts: Interrupts,
    ) -> None:
        self._end = end
        self._options = options
        self._console = console
        self._interrupts = interrupts
        self._written = 0
        self._popped = 0

    def at_once(self, wanted: int) -> int:
        """All within one read; returns how many."""
        try:
            with ExitStack() as seen_through:
                with self._end.read(wanted, key_max=self._options.key_max) as read:
                    batch = read.batch.to_arrow()
                    with open_output(self._options, self._console, batch.schema) as sink:
                        sink.write(batch)
                    # From here on an interrupt waits for the pop, which leaving the read is.
                    seen_through.enter_context(self._interrupts.held())
                    self._written = batch.num_rows
                self._popped = self._written
        except (tm.TidemillError, KeyboardInterrupt) as error:
            raise self._stopped(error) from error
        return self._popped

    def in_pieces(self, wanted: int) -> int:
        """More than a read should hold in memory: all of it is written first, then popped piece by
        piece. The folder is ours meanwhile, so that nobody can push in between.
        """
        end, pieces = self._end, list[int]()
        with (
            end.scan(keys=(None, self._options.key_max)) as reader,
            open_output(self._options, self._console, reader.schema) as sink,
            self._console.progress("writing") as progress,
        ):
            for batch in first_rows(reader, wanted):
                sink.write(batch)
                pieces.append(batch.num_rows)
                progress.show(sum(pieces), sum(pieces) / min(wanted, len(end)))
        self._written = sum(pieces)
        try:
            if self._written == len(end):
                with self._interrupts.held():
                    self._popped = end.clear()
                return self._popped
            with self._console.progress("popping") as progress:
                for rows in pieces:
                    with self._interrupts.held():
                        self._popped += len(end.pop(rows))
                    progress.show(self._popped, self._popped / self._written)
        except (tm.TidemillError, KeyboardInterrupt) as error:
            raise self._stopped(error) from error
        return self._popped

    def _stopped(self, error: BaseException) -> BaseException:
        """The error that ended it, with what is in the output and what still in the queue."""
        written, popped = self._written, self._popped
        if not written:
            return error
        words = f"the output has {counted(written, 'item')}"
        if self._interrupts.is_forced:
            words += f"; whether more than {popped:,} of them were popped is not known"
        elif popped < written:
            words += f", the last {written - popped:,} of which are still in the queue"
        else:
            words += ", and all of them were popped"
        return Stopped(error, words, {"written": written, "popped": popped})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(
        parser,
        Positional("n", "how many; default: 1", whole_number, is_required=False, default=1),
    )
    parser.add_argument("--all", action="store_true", help="everything there is")
    parser.add_argument("--key-max", type=key, metavar="KEY", help="leave greater keys alone")
    parser.add_argument(
        "--wait-s",
        type=seconds,
        metavar="SECONDS",
        help="wait so long for the first item; others can push meanwhile",
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
