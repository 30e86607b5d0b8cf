"""`tidemill demo`: the main job, end to end."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path

from tidemill.errors import InvalidInput, MissingExtra
from tidemill.gateway.arguments import positive
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console

PICTURE = Path("tidemill-demo.svg")
REPORT = Path("tidemill-report.html")

DETAILS = """
Devices push to priority queues, which are merged into a log; a pipeline on Spark makes windows of
it, archives it as Parquet and sets bad rows aside. The devices and the pipeline are killed in the
middle, and every number is held against what went in. In the end there is a report to look at.

Where Spark is not installed (pip install 'tidemill[spark]'), with --queue and with --picture, it is
about one queue alone: pushes, a crash, an audit, pops, and a picture.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    is_one_queue = options.queue or options.picture is not None
    if is_one_queue and options.report is not None:
        raise InvalidInput("one queue alone gives a picture; the report is of the whole main job")
    if not is_one_queue and find_spec("pyspark") is not None:
        from tidemill.gateway import main_job  # noqa: PLC0415  Other commands start without it.

        main_job.run(
            items=options.items,
            folder=options.folder,
            report=options.report or REPORT,
            is_json=console.is_json,
            progress=console.progress,
            say=console.line_now,
        )
        return
    if options.report is not None:
        raise MissingExtra("the report is made with Spark: pip install 'tidemill[spark]'")
    from tidemill.gateway import demo  # noqa: PLC0415

    demo.run(
        items=options.items,
        folder=options.folder,
        picture=options.picture or PICTURE,
        is_json=console.is_json,
        progress=console.progress,
        say=console.line_now,
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--items", type=positive, default=4_000_000, help="how many events (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="keep everything in this folder (default: a temporary one)",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help=f"where to write the report ({REPORT})"
    )
    parser.add_argument(
        "--queue", action="store_true", help="one queue alone, without Spark, in less time"
    )
    parser.add_argument(
        "--picture", type=Path, metavar="FILE", help=f"of one queue: where to draw it ({PICTURE})"
    )


COMMAND = Command(
    name="demo",
    summary="devices, queues, a log, a pipeline, crashes, a report: the main job, end to end",
    details=DETAILS,
    examples=(
        "tidemill demo",
        "tidemill demo --items 500000 --folder telemetry/",
        "tidemill demo --queue",
    ),
    arguments=_arguments,
    run=run,
)
