"""`tidemill pipeline`: run the pipelines of a file, list them, and tell how far they are."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemill.errors import InvalidInput
from tidemill.gateway.arguments import interval
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.refusal import NotFound
from tidemill.gateway.spark_session import add_spark, is_remote, spark_session

if TYPE_CHECKING:  # Who runs no pipeline need not have Spark.
    from pyspark.sql import SparkSession

    from tidemill.spark import Pipeline
    from tidemill.spark.pipelines.status import PipelineStatus, SinkStatus

DETAILS = """
FILE is a file of Python with functions that are decorated with @pipeline. Each row of the sources
comes to each sink once, however often the command is killed and started again. Ctrl-C and SIGTERM
end it behind the batch that it is in; a second one ends it at once, which loses nothing either.

Without --once or --batch it goes on until it is stopped. Spark runs within this command, unless
--master or --remote name a cluster or a server.
"""


def _run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.pipelines.loading import chosen  # noqa: PLC0415
    from tidemill.spark.pipelines.state import State  # noqa: PLC0415

    file = _file(options)
    # What is wrong with the file is told before Spark starts; but functions that the file makes for
    # Spark are of another kind once there is a session at a server.
    pipelines = {} if is_remote(options) else chosen(file, options.names)
    for one in pipelines.values():
        State.of(one, options.state, is_remote=False).check_free()
    with spark_session(options, file.stem, console) as spark:
        pipelines = pipelines or chosen(file, options.names)
        if options.batch:
            _run_batches(pipelines, spark, options, console)
            return
        from tidemill.gateway.pipeline_running import Watched  # noqa: PLC0415

        starts: dict[str, Callable[[], Any]] = {
            name: partial(
                one.start,
                spark,
                once=options.once,
                every_s=0.0 if options.every is None else options.every.total_seconds(),
                state=options.state,
            )
            for name, one in pipelines.items()
        }
        # Spark takes Ctrl-C for itself when it starts; from here on it is ours again.
        with Interrupts() as interrupts:
            Watched(starts, console).run(interrupts)


def _run_batches(
    pipelines: dict[str, Pipeline],
    spark: SparkSession,
    options: argparse.Namespace,
    console: Console,
) -> None:
    numbers: dict[str, Any] = {}
    for name, one in pipelines.items():
        done = one.run(spark, batch=True, state=options.state)
        numbers[name] = {sink: told.last_batch for sink, told in done.items()}
    words = "\n".join(
        f"{name}: batch {number} is written to {', '.join(sinks)}"
        for name, sinks in numbers.items()
        for number in {*sinks.values()}
    )
    console.result(words, {"batches": numbers})


def _list(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.pipelines.loading import load  # noqa: PLC0415
    from tidemill.spark.pipelines.state import State  # noqa: PLC0415

    found = [
        {
            "name": name,
            "sources": {key: source.shown for key, source in one.sources.items()},
            "sinks": {key: sink.shown for key, sink in one.sinks.items()},
            "state": State.of(one, options.state, is_remote=False).location,
        }
        for name, one in load(_file(options)).items()
    ]
    rows = [
        (str(one["name"]), _ends(one["sources"]), _ends(one["sinks"]), str(one["state"]))
        for one in found
    ]
    words = table(("pipeline", "sources", "sinks", "state"), rows)
    console.result(words, {"pipelines": found})


def _status(options: argparse.Namespace, console: Console) -> None:
    from tidemill.spark.pipelines.loading import chosen  # noqa: PLC0415
    from tidemill.spark.pipelines.status import status  # noqa: PLC0415

    found = [
        status(one, state=options.state) for one in chosen(_file(options), options.names).values()
    ]
    headings = ("sink", "run by", "batch", "done", "behind", "rows/s", "state")
    rows = [_status_row(one, sink) for one in found for sink in one.sinks]
    document = [_status_document(one) for one in found]
    console.result(table(headings, rows), {"pipelines": document})


def _status_row(one: PipelineStatus, sink: SinkStatus) -> tuple[str, ...]:
    runner = "nobody" if one.runner is None else f"process {one.runner}" if one.runner else "?"
    return (
        f"{one.pipeline}.{sink.sink}",
        runner,
        "-" if sink.last_batch is None else f"{sink.last_batch:,}",
        "-" if sink.last_at is None else _ago(sink.last_at),
        "?" if sink.lag is None else f"{sink.lag:,}",
        "-" if sink.rows_per_s is None else f"{sink.rows_per_s:,.0f}",
        f"{sink.state_bytes:,} bytes",
    )


def _status_document(one: PipelineStatus) -> dict[str, Any]:
    document = asdict(one)
    for sink in document["sinks"]:
        sink["last_at"] = None if sink["last_at"] is None else sink["last_at"].isoformat()
    return document


def _file(options: argparse.Namespace) -> Path:
    """The file of Python, which has to be there before Spark starts, here or at a server."""
    path = Path(options.file)
    if path.is_dir():
        raise InvalidInput(f"{path} is a folder, not a file of Python")
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    return path


def _ago(moment: datetime) -> str:
    return f"{max(0.0, (datetime.now(UTC) - moment).total_seconds()):,.0f} s ago"


def _ends(named: Any) -> str:
    return ", ".join(named.values())


def _add_file(parser: argparse.ArgumentParser, *, names: bool) -> None:
    parser.add_argument("file", metavar="FILE", help="the file of Python with the pipelines")
    if names:
        parser.add_argument(
            "names", nargs="*", metavar="NAME", help="these pipelines of it; default: all"
        )
    parser.add_argument(
        "--state",
        metavar="FOLDER",
        help="where checkpoints are kept (TIDEMILL_STATE; default: beside the first sink)",
    )


def _run_arguments(parser: argparse.ArgumentParser) -> None:
    _add_file(parser, names=True)
    trigger = parser.add_mutually_exclusive_group()
    trigger.add_argument(
        "--once", action="store_true", help="end when everything that is there now is done"
    )
    trigger.add_argument(
        "--every", type=interval, metavar="TIME", help="a batch every so often (5s, 1m)"
    )
    trigger.add_argument(
        "--batch", action="store_true", help="everything from the start, as one batch"
    )
    add_spark(parser)


COMMAND = Command(
    name="pipeline",
    summary="run functions between queues on Spark, each row once",
    children=(
        Command(
            name="run",
            summary="run the pipelines of a file",
            details=DETAILS,
            examples=(
                "tidemill pipeline run clicks.py --once",
                "tidemill pipeline run clicks.py --every 5s",
                "tidemill pipeline run clicks.py per_minute --master spark://host:7077",
            ),
            arguments=_run_arguments,
            run=_run,
        ),
        Command(
            name="list",
            summary="show the pipelines of a file, and their ends",
            examples=("tidemill pipeline list clicks.py",),
            arguments=partial(_add_file, names=False),
            run=_list,
        ),
        Command(
            name="status",
            summary="tell how far the pipelines of a file are, whoever runs them",
            examples=(
                "tidemill pipeline status clicks.py",
                "tidemill pipeline status clicks.py per_minute --json",
            ),
            arguments=partial(_add_file, names=True),
            run=_status,
        ),
    ),
)
