"""`tidemill receive`: the next rows of a consumer of a log."""

from __future__ import annotations

import argparse
import sys

import tidemill as tm
from tidemill.batch.frame import SEQ_FIELD, TIME_FIELD
from tidemill.gateway.arguments import Positional, add_log, add_output, positive, seconds
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.log_opening import open_log, start
from tidemill.gateway.output import open_output
from tidemill.gateway.rows.sink import RowSink, choose_format
from tidemill.limits import RECEIVED_ROWS_MAX
from tidemill.shown import counted

DETAILS = """
A consumer that is not there begins at --start. Rows are acked after they were written and flushed;
those of a file, after all of it is on disk. So a command that is killed gets the same rows again.

Without --follow it ends at the last row there is. With it, it waits for more until it is stopped.
"""


class Receiving:
    """Writes rows, and acks them."""

    def __init__(
        self, receiver: tm.Receiver, options: argparse.Namespace, *, is_stream: bool
    ) -> None:
        self._receiver = receiver
        self._options = options
        self._is_stream = is_stream  # rows are out as soon as they are flushed
        self.rows = 0
        self.first: int | None = None
        self.last = receiver.pointer

    def run(self, sink: RowSink, interrupts: Interrupts) -> None:
        """Write what there is, or as many as were asked for."""
        wanted = self._options.rows
        while wanted is None or self.rows < wanted:
            batch = self._receiver.receive(self._options.wait_s)
            if batch is None:
                return
            with interrupts.held():
                left = len(batch) if wanted is None else min(len(batch), wanted - self.rows)
                sink.write(batch.slice(0, left).to_arrow())
                self.first = batch.first_seq if self.first is None else self.first
                self.last = batch.first_seq + left - 1
                self.rows += left
                if self._is_stream:
                    sys.stdout.buffer.flush()
                    self.ack()

    def ack(self) -> None:
        """All that was written is done."""
        if self.first is not None and not self._options.keep:
            self._receiver.ack(self.first, self.last)


def run(options: argparse.Namespace, console: Console) -> None:
    chosen = "ndjson" if options.format is None and console.is_json else options.format
    is_stream = options.to == "-" and choose_format("-", chosen) != "parquet"
    if options.follow and not is_stream:
        raise tm.InvalidInput(
            "--follow writes to standard output, as ndjson, csv, lines or a table"
        )
    rows_max = min(options.rows or RECEIVED_ROWS_MAX, RECEIVED_ROWS_MAX)
    with (
        open_log(options) as log,
        log.receiver(
            options.consumer, start=options.start, follow=options.follow, rows_max=rows_max
        ) as receiver,
        Interrupts() as interrupts,
    ):
        schema = log.schema
        schema = schema.insert(0, TIME_FIELD).insert(0, SEQ_FIELD)
        receiving = Receiving(receiver, options, is_stream=is_stream)
        with open_output(options, console, schema) as sink:
            receiving.run(sink, interrupts)
        receiving.ack()
        receiver.flush()
    if options.to != "-":
        words = f"received {counted(receiving.rows, 'row')} to {options.to}"
        console.result(
            words,
            {
                "received": receiving.rows,
                "first": receiving.first,
                "last": receiving.last if receiving.rows else None,
                "to": options.to,
            },
        )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser, Positional("consumer", "the name under which the log remembers how far it is"))
    parser.add_argument("--rows", type=positive, metavar="N", help="at most so many")
    parser.add_argument("--follow", action="store_true", help="wait for rows that are yet to come")
    parser.add_argument(
        "--wait-s", type=seconds, metavar="SECONDS", help="end if none came for so long"
    )
    parser.add_argument(
        "--start",
        type=start,
        default="earliest",
        metavar="WHERE",
        help="of a new consumer: earliest, latest, the number of a row, or a time with its zone",
    )
    parser.add_argument("--keep", action="store_true", help="ack nothing: the rows come again")
    add_output(parser)


COMMAND = Command(
    name="receive",
    summary="write the next rows of a consumer of a log, and ack them",
    details=DETAILS,
    examples=(
        "tidemill receive orders/ billing",
        "tidemill receive orders/ billing --follow --format lines | handle-orders",
        "tidemill receive orders/ audit --start 2026-11-15T00:00:00Z --to today.parquet",
        "tidemill receive orders/ billing --rows 10 --keep --json",
    ),
    arguments=_arguments,
    run=run,
)
