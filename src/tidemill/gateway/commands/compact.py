"""`tidemill compact`: fewer, larger files in the archive of a log."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from tidemill.gateway.arguments import add_log
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import open_log
from tidemill.gateway.spark_job import run_job
from tidemill.gateway.spark_session import add_spark
from tidemill.shown import counted

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession

DETAILS = """
An archive that is fed every few seconds has many small files. Those that lie side by side become
one, wherever they are; each new file is read back and compared before it takes the place of others.
Rows keep their numbers, and whoever reads does not notice. An archiver that runs meanwhile ends, if
there is anything to do: start it again. If the command is killed, run it again. Spark runs within
this command, unless --master or --remote name a cluster or a server that sees the same archive.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.archives.compact_job import Compacted, compact  # noqa: PLC0415

    with open_log(options):
        pass  # What is wrong with it is told before Spark starts.

    def work(spark: SparkSession, show: Callable[[int, float], None]) -> Compacted:
        return compact(spark, options.queue, on_progress=show)

    done = run_job(
        options,
        console,
        job="compaction of",
        place=options.queue,
        doing="compacting",
        done="compacted",
        noun="row",
        work=work,
    )
    words = (
        f"made {counted(done.segments_after, 'segment')} of {done.segments_before:,}, with "
        f"{counted(done.rows, 'row')}; the archive has {counted(done.total, 'segment')}"
    )
    console.result(words, asdict(done))


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    add_spark(parser)


COMMAND = Command(
    name="compact",
    summary="make fewer, larger files of the small ones in the archive of a log, on Spark",
    details=DETAILS,
    examples=(
        "tidemill compact orders/",
        "tidemill compact mysql://app@localhost/shop/orders --master spark://host:7077",
    ),
    arguments=_arguments,
    run=run,
)
