"""`tidemill replay`: rows of a log or a queue, sent once more to another."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemill.gateway.arguments import OneOf, key_range
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import add_bounds
from tidemill.gateway.spark_job import run_job
from tidemill.gateway.spark_session import add_spark
from tidemill.shown import counted
from tidemill.urls import without_password

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession

DETAILS = """
SOURCE is a log, a priority queue (what is left of it), or the archive of a log; it is only read.
The rows that all of the bounds and the filter name come to the target in the order of their
numbers, each once: if the command is killed, run it again, and it goes on where it was. Run again
later it takes what has come since, unless an end was given. Another --name replays the same rows
once more.

--where is SQL over the columns of the source: seq, key (of a queue), time and the payload's. Spark
runs within this command, unless --master or --remote name a cluster or a server that sees the same
folders.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.address import find  # noqa: PLC0415
    from tidemill.spark.replaying.job import Replayed, replay  # noqa: PLC0415

    find(options.source)  # What is wrong with it is told before Spark starts.

    def work(spark: SparkSession, show: Callable[[int, float], None]) -> Replayed:
        return replay(
            spark,
            options.source,
            options.into,
            seqs=(options.first, options.last),
            keys=options.keys,
            times=(options.since, options.until),
            where=options.where,
            key=options.key,
            kind=options.kind,
            name=options.name,
            on_progress=show,
        )

    replayed = run_job(
        options,
        console,
        job="replay of",
        place=options.source,
        doing="replaying",
        done="replayed",
        noun="row",
        work=work,
    )
    words = f"replayed {counted(replayed.rows, 'row')} to {without_password(options.into)}"
    if replayed.rows:
        words += f", rows {replayed.first:,} to {replayed.last:,}"
    document = asdict(replayed)
    if not replayed.rows:
        document |= {"first": None, "last": None}
    console.result(words, document)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a folder, or a server's URL, or s3://")
    parser.add_argument(
        "--into", required=True, metavar="TARGET", help="a log or a queue: a folder, or a URL"
    )
    add_bounds(parser)
    parser.add_argument(
        "--keys", type=key_range, metavar="LOW:HIGH", help="of a queue: items with these keys"
    )
    parser.add_argument("--where", metavar="SQL", help="rows for which this is true")
    parser.add_argument(
        "--key",
        metavar="COLUMN",
        help="into a queue: the column to order by; from a queue into a log: the column that takes "
        "the key (item_key)",
    )
    parser.add_argument(
        "--kind",
        type=OneOf("log", "queue"),
        metavar="KIND",
        help="of a target that is not there yet: log (the default), or queue",
    )
    parser.add_argument(
        "--name",
        default="replay",
        metavar="NAME",
        help="tells apart replays of the same rows (%(default)s)",
    )
    add_spark(parser)


COMMAND = Command(
    name="replay",
    summary="send rows of a log or a queue to another once more, on Spark",
    details=DETAILS,
    examples=(
        "tidemill replay orders/ --into orders-again/ --from 1000 --to 2000",
        "tidemill replay orders/ --into repair/ --since 2026-11-15T00:00:00Z "
        "--where \"status = 'failed'\"",
        "tidemill replay mysql://app@localhost/shop/orders --into due/ --kind queue --key due_ns",
    ),
    arguments=_arguments,
    run=run,
)
