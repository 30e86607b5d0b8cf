"""`tidemill profile`: what is in a queue, a log or an archive."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.files.disk.storage import storage_errors
from tidemill.gateway.arguments import OneOf
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.log_opening import add_bounds
from tidemill.gateway.result_file import check_result
from tidemill.gateway.spark_job import run_job
from tidemill.gateway.spark_session import add_spark

if TYPE_CHECKING:  # Other commands do without.
    from pyspark.sql import SparkSession

    from tidemill.spark.profiling.profile import Profile

DETAILS = """
SOURCE is a log, a priority queue (what is left of it), or the archive of a log; it is only read.
Spark counts rows and bytes, rates over time, nulls, different values and bounds of each column,
gaps between keys, keys and payloads that come twice, and rows that are late: behind an event that
came before them. --report writes all of it as a page for a browser, with plots.

Late data needs an event time: a column of times or of whole numbers (--event-unit says of what), or
the keys of a queue if they are nanoseconds since 1970. Spark runs within this command, unless
--master or --remote name a cluster or a server that sees the same folders.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.gateway.profile_report import page  # noqa: PLC0415
    from tidemill.spark.address import find  # noqa: PLC0415
    from tidemill.spark.profiling.job import profile  # noqa: PLC0415

    # What is wrong with them is told before Spark starts.
    find(options.source)
    report = None if options.report is None else Path(options.report)
    if report is not None:
        check_result(report, "report")

    def work(spark: SparkSession, show: Callable[[int, float], None]) -> Profile:
        return profile(
            spark,
            options.source,
            seqs=(options.first, options.last),
            times=(options.since, options.until),
            key=options.key,
            event_time=options.event_time,
            event_unit=options.event_unit,
            duplicates=not options.no_duplicates,
            on_progress=show,
        )

    found = run_job(
        options,
        console,
        job="profile of",
        place=options.source,
        doing="profiling",
        done="looked at",
        noun="row",
        work=work,
    )
    document = found.to_json()
    words = [str(found)]
    if found.columns:
        words += ["", _columns(found)]
    if report is not None:
        with storage_errors("writing", report):
            report.write_text(page(found), encoding="utf-8")
        words += ["", f"the report is in {report}: open it in a browser"]
        document["report"] = str(report)
    console.result("\n".join(words), document)


def _columns(found: Profile) -> str:
    headings = ("column", "type", "nulls", "different", "least", "greatest", "bytes")
    return table(
        headings,
        [
            (
                one.name,
                _cut(one.type),
                f"{one.nulls:,}",
                f"{one.distinct:,}",
                _cut(one.least or "-"),
                _cut(one.greatest or "-"),
                f"{one.bytes:,}",
            )
            for one in found.columns
        ],
    )


def _cut(words: str) -> str:
    """What fits into a column, on one line."""
    words = " ".join(words.split())
    return words if len(words) <= 24 else f"{words[:23]}…"


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE", help="a folder, or a server's URL, or s3://")
    add_bounds(parser)
    parser.add_argument(
        "--key", metavar="COLUMN", help="look for gaps and doubles in this one (a queue's keys)"
    )
    parser.add_argument("--event-time", metavar="COLUMN", help="when a row happened")
    parser.add_argument(
        "--event-unit",
        type=OneOf("s", "ms", "us", "ns"),
        default="ns",
        metavar="UNIT",
        help="of an event time that is a number since 1970: s, ms, us or ns (%(default)s)",
    )
    parser.add_argument(
        "--no-duplicates", action="store_true", help="do not look for doubles, which takes longest"
    )
    parser.add_argument("--report", metavar="FILE", help="write a page for a browser")
    add_spark(parser)


COMMAND = Command(
    name="profile",
    summary="tell what is in a queue, a log or an archive, on Spark",
    details=DETAILS,
    examples=(
        "tidemill profile orders/",
        "tidemill profile readings/ --key device --event-time measured_at --report readings.html",
        "tidemill profile s3://backups/orders --since 2026-11-15T00:00:00Z --json",
    ),
    arguments=_arguments,
    run=run,
)
