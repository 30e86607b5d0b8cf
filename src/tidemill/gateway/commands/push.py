"""`tidemill push`: rows of a file or a pipe into a queue."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa

import tidemill as tm
from tidemill.batch import to_rows
from tidemill.batch.schema import check_payload_schema
from tidemill.closing import Closing
from tidemill.files.folder.folder_options import SyncMode
from tidemill.gateway.arguments import (
    Positional,
    add_binary,
    add_format,
    add_queue,
    add_sync,
    bucket,
    positive,
    size,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.opening import is_queue
from tidemill.gateway.refusal import Stopped
from tidemill.gateway.rows.schema_text import parse_schema_text
from tidemill.gateway.rows.source import RowSource, open_source
from tidemill.gateway.sync_behind import SyncBehind
from tidemill.shown import counted

DETAILS = """
The folder is made if it is not there. A new queue takes its columns from the first rows, unless
--schema names them: 'city: utf8, at: timestamp[us, UTC], n: int64 not null', or a JSON file with
[{"name": "city", "type": "utf8"}, {"name": "tags", "type": {"list": "utf8"}}].

The input goes in by batches, each of them wholly or not at all. If it breaks off, the message says
how many rows are in, and --skip-rows goes on behind them. Lines and NDJSON from a pipe go in as
they come; only where NDJSON has to tell the types of columns, its first 8 MiB are awaited.
"""


# Of a push, what the queue itself is to sync; the syncs of the rows are ours, behind them.
_SYNCED_BEHIND: dict[str, SyncMode] = {"full": "index", "data": "none"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """How far a push has come."""

    skip_rows: int
    rows: int = 0
    first: int | None = None
    last: int | None = None
    durability: str | None = None

    def and_(self, receipt: tm.Receipt, durability: str) -> Pushed:
        """This and one batch more."""
        first = receipt.first if self.first is None else self.first
        return Pushed(self.skip_rows, self.rows + receipt.count, first, receipt.last, durability)

    def document(self, verb: str = "pushed") -> dict[str, Any]:
        return {
            verb: self.rows,
            "first": self.first,
            "last": self.last,
            "durability": self.durability,
        }

    def words(self, verb: str = "pushed", numbers: str = "arrival numbers") -> str:
        if not self.rows:
            return "no rows to push" if verb == "pushed" else "no rows to send"
        numbers = f"with the {numbers} {self.first} to {self.last}"
        return f"{verb} {counted(self.rows, 'row')} {numbers}, {self.durability}"

    def stopped(self, error: BaseException, verb: str = "pushed") -> Stopped:
        """The error that ended it, with what was done before and how to go on."""
        go_on = f"--skip-rows {self.skip_rows + self.rows}"
        words = (
            f"{self.words(verb)}, before this" if self.rows else f"no row was {verb} before this"
        )
        if isinstance(error, tm.StorageFailed):
            words += "; whether the next rows are in as well is not known, so look before you go on"
        if self.skip_rows or self.rows:
            words += f"; row numbers above count from there; go on with {go_on}"
        return Stopped(error, words, {**self.document(verb), "go_on": go_on})


class Pushing(Closing):
    """Pushes batch by batch, and knows what of it may be reported: what is as safe as was asked."""

    def __init__(self, queue: tm.PriorityQueue, options: argparse.Namespace) -> None:
        self.reportable = self._newest = Pushed(options.skip_rows)
        self._queue = queue
        self._key = options.key
        self._behind = SyncBehind(queue.sync) if options.sync in _SYNCED_BEHIND else None

    @property
    def rows(self) -> int:
        return self._newest.rows

    def push(self, batch: pa.RecordBatch) -> None:
        """Push a batch, wait for the sync of the one before, and begin its own."""
        receipt = self._queue.push(batch, key=self._key)
        if self._behind is None:
            self.reportable = self._newest = self._newest.and_(receipt, receipt.durability)
            return
        self.finish()
        self._newest = self._newest.and_(receipt, "synced")
        self._behind.begin()

    def finish(self) -> None:
        """Wait until all that was pushed may be reported."""
        if self._behind is not None:
            try:
                self._behind.finish()
            except tm.TidemillError:
                # A sync that failed is never tried again: what it was for stays unreported.
                self._newest = self.reportable
                raise
        self.reportable = self._newest

    def stopped(self, error: BaseException) -> Stopped:
        """The error that ended it, when all that is in has been synced, if that can be."""
        try:
            self.finish()
        except tm.TidemillError as failure:
            error = failure
        return self.reportable.stopped(error)

    def close(self) -> None:
        if self._behind is not None:
            self._behind.close()


def run(options: argparse.Namespace, console: Console) -> None:
    schema = None if options.schema is None else parse_schema_text(options.schema)
    with (
        open_source(options.input, options.format, binary=options.binary, is_live=True) as source,
        _opened(options, schema, source) as (queue, batches),
    ):
        if queue is None:
            pushed = Pushed(options.skip_rows)
        else:
            pushed = _push_all(queue, batches, source, options, console)
    console.result(pushed.words(), {"queue": options.queue, **pushed.document()})


def _push_all(
    queue: tm.PriorityQueue,
    batches: Iterator[pa.RecordBatch],
    source: RowSource,
    options: argparse.Namespace,
    console: Console,
) -> Pushed:
    with (
        console.progress("pushing") as progress,
        Interrupts() as interrupts,
        Pushing(queue, options) as pushing,
    ):
        try:
            for batch in batches:
                with interrupts.held():
                    pushing.push(batch)
                progress.show(pushing.rows, source.share())
            with interrupts.held():
                pushing.finish()
        except (tm.TidemillError, KeyboardInterrupt) as error:
            raise pushing.stopped(error) from error
    return pushing.reportable


@contextmanager
def _opened(
    options: argparse.Namespace, schema: pa.Schema | None, source: RowSource
) -> Iterator[tuple[tm.PriorityQueue | None, Iterator[pa.RecordBatch]]]:
    """The queue, and the rows that are meant for it; no queue if none is there, and there are no
    rows to tell its columns.

    A new queue is made when its first rows are known to be good: bad input leaves no trace.
    """
    sync = _SYNCED_BEHIND.get(options.sync, options.sync)
    common = {"sync": sync, "on_corruption": options.on_corruption}
    common |= {"bytes_max": options.bytes_max, "when_full": options.when_full}
    common |= {"lock_wait_s": options.lock_wait_s}
    if is_queue(options.queue):
        with tm.PriorityQueue(
            options.queue, schema=schema, bucket=options.bucket, **common
        ) as queue:
            yield queue, rows_of(source, queue.schema, options)
        return
    payload = None if schema is None else check_payload_schema(schema)
    batches = rows_of(source, payload, options)
    first = next(batches, None)
    if first is not None:
        payload = to_rows(first, schema=payload, key=options.key).payload.schema
        batches = chain([first], batches)
    elif payload is None:
        # Its columns would be those of no rows, and refuse all that are to come.
        yield None, batches
        return
    with tm.PriorityQueue(options.queue, schema=payload, bucket=options.bucket, **common) as queue:
        yield queue, batches


def rows_of(
    source: RowSource, payload: pa.Schema | None, options: argparse.Namespace
) -> Iterator[pa.RecordBatch]:
    """The rows of the source without those to be skipped, in batches of the size asked for."""
    skip = options.skip_rows
    for batch in source.batches(payload, options.key):
        rest = batch.slice(min(skip, batch.num_rows))
        skip -= batch.num_rows - rest.num_rows
        step = min(options.batch_rows or rest.num_rows, rest.num_rows) or 1
        for start in range(0, rest.num_rows, step):
            yield rest.slice(start, step)


def add_input(
    parser: argparse.ArgumentParser,
    add_home: Callable[[argparse.ArgumentParser, Positional], None],
    verb: str,
) -> None:
    """Where rows come from, how they are written, and how they go in."""
    add_home(
        parser,
        Positional("input", "'-': standard input, the default", _dash, is_required=False),
    )
    parser.add_argument(
        "--from", dest="source", metavar="FILE", help=f"{verb} the rows of this file"
    )
    add_format(parser, "of the input; default: by the name of the file, ndjson for a pipe")
    parser.add_argument("--schema", metavar="SCHEMA", help="the columns of the payload")
    parser.add_argument(
        "--skip-rows", type=whole_number, default=0, metavar="N", help="leave out the first N rows"
    )
    parser.add_argument(
        "--batch-rows", type=positive, metavar="N", help="rows that go in together, at most"
    )
    add_binary(parser)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_input(parser, add_queue, "push")
    parser.add_argument("--key", metavar="COLUMN", help="order by this column (default: key)")
    parser.add_argument(
        "--bucket", type=bucket, metavar="FUNCTION", help="of a new queue: shift:BITS or width:KEYS"
    )
    parser.add_argument(
        "--bytes-max",
        type=size,
        metavar="SIZE",
        help="the disk that the queue may take (500MB, 10GiB)",
    )
    parser.add_argument(
        "--when-full", choices=("refuse", "drop_oldest"), default="refuse", help="at --bytes-max"
    )
    add_sync(parser)
    parser.set_defaults(check=check_input)


def _dash(text: str) -> str:
    if text != "-":
        raise argparse.ArgumentTypeError(f"{text!r} is not '-'; a file is named with --from")
    return text


def check_input(options: argparse.Namespace) -> None:
    """Settle where rows come from."""
    if options.source is not None and options.input is not None:
        options.parser.error("either '-' or --from FILE")
    options.input = options.source or "-"


COMMAND = Command(
    name="push",
    summary="push the rows of a file or of standard input",
    details=DETAILS,
    examples=(
        "tidemill push spool/ --from events.parquet --key ts",
        "generate-events | tidemill push spool/ -",
        "tidemill push spool/ --from events.csv --schema 'city: utf8, n: int64' --key n",
        "dmesg | tidemill push spool/ - --format lines",
    ),
    arguments=_arguments,
    run=run,
)
