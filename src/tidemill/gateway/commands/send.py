"""`tidemill send`: rows of a file or a pipe into a log."""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import chain

import pyarrow as pa

import tidemill as tm
from tidemill.batch import to_payload
from tidemill.batch.schema import check_payload_schema
from tidemill.gateway.arguments import OneOf, add_lock_wait, add_log
from tidemill.gateway.command import Command
from tidemill.gateway.commands.push import Pushed, add_input, check_input, rows_of
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.log_opening import exists, is_folder, refuse_archive, to_own
from tidemill.gateway.rows.schema_text import parse_schema_text
from tidemill.gateway.rows.source import RowSource, open_source
from tidemill.shown import counted
from tidemill.urls import without_password

DETAILS = """
The log is made if it is not there. A new one takes its columns from the first rows, unless --schema
names them. One process at a time sends to a log in a folder; on a server the newest one wins.

The input goes in by batches, each of them wholly or not at all. If it breaks off, the message says
how many rows are in. Lines and NDJSON from a pipe go in as they come; only where NDJSON has to tell
the types of columns, its first 8 MiB are awaited.

With --producer the log remembers how far this input has come: run the same command again, and what
is in already is left out. Batches are then full ones of 8 MiB, the same in every run.
"""

_UNDER_WAY_MAX = 16  # batches that are sent before the first of them is confirmed


class Sending:
    """Sends batch by batch, and knows what is confirmed."""

    def __init__(self, log: tm.Log, out: tm.Publisher, options: argparse.Namespace) -> None:
        self._next = log.ends().next
        self.sent = Pushed(options.skip_rows)
        self.left_out = 0  # rows that an earlier run has sent
        self._out = out
        self._has_producer = options.producer is not None
        self._row = options.skip_rows
        self._under_way: deque[Future[tm.Receipt]] = deque()

    def send(self, batch: pa.RecordBatch) -> None:
        """Send a batch; it is numbered by the last of its rows, the same in every run."""
        self._row += batch.num_rows
        number = self._row if self._has_producer else None
        try:
            self._under_way.append(self._out.send_soon(batch, number=number))
        except tm.ProducerRewound:
            self.left_out += batch.num_rows
            return
        if len(self._under_way) > _UNDER_WAY_MAX:
            self._confirm()

    def finish(self) -> None:
        """Wait until everything is confirmed."""
        while self._under_way:
            self._confirm()

    def _confirm(self) -> None:
        receipt = self._under_way.popleft().result()
        if receipt.count and receipt.last < self._next:
            self.left_out += receipt.count  # The last number of an earlier run.
            return
        self.sent = self.sent.and_(receipt, receipt.durability)


def run(options: argparse.Namespace, console: Console) -> None:
    schema = None if options.schema is None else parse_schema_text(options.schema)
    with (
        open_source(
            options.input,
            options.format,
            binary=options.binary,
            # A producer knows batches by their last rows, which have to be the same in every run.
            is_live=options.producer is None,
        ) as source,
        _opened(options, schema, source) as (log, batches),
        log.publisher(producer=options.producer) as out,
        console.progress("sending") as progress,
        Interrupts() as interrupts,
    ):
        sending = Sending(log, out, options)
        try:
            for batch in batches:
                with interrupts.held():
                    sending.send(batch)
                progress.show(sending.sent.rows, source.share())
            with interrupts.held():
                sending.finish()
        except (tm.TidemillError, KeyboardInterrupt) as error:
            raise sending.sent.stopped(error, "sent") from error
    words = sending.sent.words("sent", "numbers")
    if sending.left_out:
        words += f"; left out {counted(sending.left_out, 'row')} that an earlier run has sent"
    document = {"log": without_password(options.queue), **sending.sent.document("sent")}
    console.result(words, {**document, "left_out": sending.left_out})


@contextmanager
def _opened(
    options: argparse.Namespace, schema: pa.Schema | None, source: RowSource
) -> Iterator[tuple[tm.Log, Iterator[pa.RecordBatch]]]:
    """The log, and the rows that are meant for it; a new log in a folder is made when its first
    rows are known to be good.
    """
    refuse_archive(options.queue)
    more = to_own(options) if options.sync is None else {**to_own(options), "sync": options.sync}
    if exists(options.queue) and schema is None and is_folder(options.queue):
        with tm.Log(options.queue, **more) as log:
            yield log, rows_of(source, log.schema, options)
        return
    payload = None if schema is None else check_payload_schema(schema)
    batches = rows_of(source, payload, options)
    first = next(batches, None)
    if first is not None:
        payload = to_payload(first, schema=payload).schema
        batches = chain([first], batches)
    with tm.Log(options.queue, schema=payload, **more) as log:
        yield log, batches


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_input(parser, add_log, "send")
    parser.add_argument(
        "--producer", metavar="NAME", help="remember under this name how far the input has come"
    )
    parser.add_argument(
        "--sync",
        type=OneOf("full", "none"),
        metavar="MODE",
        help="of a log in a folder: full (rows are on disk when they are confirmed; the default), "
        "or none",
    )
    add_lock_wait(parser)
    parser.set_defaults(check=check_input, key=None)


COMMAND = Command(
    name="send",
    summary="send the rows of a file or of standard input to a log",
    details=DETAILS,
    examples=(
        "tidemill send orders/ --from orders.parquet",
        "tail -F app.log | tidemill send orders/ - --format lines",
        "tidemill send orders/ --from day-17.csv --producer day-17",
        "tidemill send mysql://app@db/shop/orders --from orders.ndjson",
    ),
    arguments=_arguments,
    run=run,
)
