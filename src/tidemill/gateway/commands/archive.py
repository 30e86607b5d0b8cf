"""`tidemill archive`: move rows of a log to an archive, once or again and again."""

from __future__ import annotations

import argparse
import re
import threading
from datetime import UTC, datetime, timedelta

import tidemill as tm
from tidemill.files.report import counted
from tidemill.gateway.arguments import Positional, add_log
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.log_opening import open_log

DETAILS = """
Rows become Parquet files in a folder or a bucket. Each is read back and compared before the log
gives up its own rows; whoever reads the log does not notice. The log remembers where its archive
is. Credentials for s3:// come from the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
A second archiver takes over from the first, which ends.
"""
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h|d)", re.ASCII)


def duration(text: str) -> float:
    """Seconds, from a number and its unit.

    >>> duration("30s"), duration("1.5h")
    (30.0, 5400.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 30s, 5m, 12h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def run(options: argparse.Namespace, console: Console) -> None:
    rounds: list[tm.Archived] = []  # of the last one, as far as it has come
    pause = threading.Event()  # Nobody sets it; unlike a sleep, it is waited for with a bound.
    with open_log(options) as log, Interrupts() as interrupts:
        try:
            while True:
                with interrupts.held():
                    _pass(log, options, console, interrupts, rounds)
                if options.every is None:
                    break
                pause.wait(options.every)
        except KeyboardInterrupt:
            _say(console, rounds)
            raise
    _say(console, rounds)


def _pass(
    log: tm.Log,
    options: argparse.Namespace,
    console: Console,
    interrupts: Interrupts,
    rounds: list[tm.Archived],
) -> None:
    rounds.append(tm.Archived(0, 0, 0, 0))
    end = log.ends().next

    def show(done: tm.Archived) -> None:
        rounds[-1] = done
        progress.show(done.rows, done.rows / max(1, end - done.first))
        interrupts.check()  # Between two segments: all that was done counts.

    with console.progress("archiving") as progress:
        rounds[-1] = log.archive(options.url, before=_before(options), on_progress=show)


def _before(options: argparse.Namespace) -> datetime | None:
    if options.keep is None:
        return None
    return datetime.now(UTC) - timedelta(seconds=options.keep)


def _say(console: Console, rounds: list[tm.Archived]) -> None:
    rows, segments = sum(one.rows for one in rounds), sum(one.segments for one in rounds)
    size = sum(one.bytes for one in rounds)
    words = f"archived {counted(rows, 'row')} in {counted(segments, 'segment')}, {size:,} bytes"
    console.result(words, {"rows": rows, "segments": segments, "bytes": size})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser, Positional("url", "the archive: a folder, or s3://bucket/prefix"))
    parser.add_argument(
        "--every",
        type=duration,
        metavar="TIME",
        help="again after so long (30s, 5m), until stopped",
    )
    parser.add_argument(
        "--keep", type=duration, metavar="TIME", help="leave rows alone that are younger (12h, 7d)"
    )


COMMAND = Command(
    name="archive",
    summary="move rows of a log to an archive of Parquet files",
    details=DETAILS,
    examples=(
        "tidemill archive orders/ orders-archive/",
        "tidemill archive mysql://app@localhost/shop/orders s3://backups/orders --every 30s",
    ),
    arguments=_arguments,
    run=run,
)
