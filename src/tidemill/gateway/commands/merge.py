"""`tidemill merge`: many queues into one log, in the order of their keys."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.spark_job import run_job
from tidemill.gateway.spark_session import add_spark
from tidemill.shown import counted
from tidemill.urls import without_password

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession

DETAILS = """
Each item is moved once: if the command is killed, run it again, and it goes on where it was, then
merges what has come since. Nobody else can use the queues meanwhile; what their forks hold stays.
Equal keys come in the order of the queues, then of their arrival. Spark runs within this command,
unless --master or --remote name a cluster or a server that sees the same folders.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.merging.job import Merged, merge, queue_folders  # noqa: PLC0415

    folders = queue_folders(options.queues)  # What is wrong with them is told before Spark starts.

    def work(spark: SparkSession, show: Callable[[int, float], None]) -> Merged:
        return merge(
            spark,
            folders,
            options.into,
            key=None if options.no_key else options.key,
            origin=options.origin,
            name=options.name,
            on_progress=show,
        )

    merged = run_job(
        options,
        console,
        job="merge into",
        place=options.into,
        doing="merging",
        done="moved",
        noun="item",
        work=work,
    )
    words = f"moved {counted(merged.rows, 'item')} to {without_password(options.into)}"
    if merged.rows:
        words += f", rows {merged.first:,} to {merged.last:,}"
    console.result(
        words,
        {
            "rows": merged.rows,
            "first": merged.first if merged.rows else None,
            "last": merged.last if merged.rows else None,
            "transactions": merged.transactions,
        },
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("queues", nargs="+", metavar="QUEUE", help="the folder of a queue")
    parser.add_argument(
        "--into", required=True, metavar="LOG", help="the log: a folder, or a server's URL"
    )
    keys = parser.add_mutually_exclusive_group()
    keys.add_argument(
        "--key", default="item_key", metavar="COLUMN", help="takes the key (%(default)s)"
    )
    keys.add_argument("--no-key", action="store_true", help="leave the key out")
    parser.add_argument("--origin", metavar="COLUMN", help="takes the name of the queue's folder")
    parser.add_argument(
        "--name", default="merge", metavar="NAME", help="of this merge, among several (%(default)s)"
    )
    add_spark(parser)


COMMAND = Command(
    name="merge",
    summary="move many queues to one log, in the order of their keys, on Spark",
    details=DETAILS,
    examples=(
        "tidemill merge edge/*/ --into readings/",
        "tidemill merge edge/a edge/b --into mysql://app@localhost/shop/readings --origin device",
    ),
    arguments=_arguments,
    run=run,
)
