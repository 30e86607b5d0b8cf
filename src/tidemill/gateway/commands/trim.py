"""`tidemill trim`: give up the oldest rows of a log."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

import tidemill as tm
from tidemill.gateway.arguments import add_lock_wait, add_log, add_yes, duration, size
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import open_log, row_or_time, to_own

DETAILS = """
A row goes if any of the limits says so, from the archive as well. It stops at the slowest consumer,
unless --force is given. A folder gives disk back by whole segments, and only its publisher, or
nobody, may have it open.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    limits = {
        "before": options.before,
        "older_than": options.older_than,
        "bytes_max": options.bytes_max,
        "consumed": options.consumed,
    }
    # A limit of 0 bytes is one.
    if all(limit is None or limit is False for limit in limits.values()):
        options.parser.error("say which: --before, --older-than, --bytes-max or --consumed")
    with open_log(options, **to_own(options)) as log:
        before = log.ends()
        if options.force:
            console.confirm(
                lambda: f"Give up rows {_shown(options)}, whether or not they were received?",
                is_sure=options.yes,
            )
        first = log.trim(**limits, force=options.force)
        is_held = _is_held(log, options, first, before.next)
    words = f"the first row is {first:,}; gave up {first - before.first:,}"
    if is_held:
        words += ", up to the slowest consumer: --force goes further"
    console.result(words, {"first": first, "next": before.next, "trimmed": first - before.first})


def _shown(options: argparse.Namespace) -> str:
    """What is to go, for the question."""
    limits = []
    if options.before is not None:
        limits.append(f"before {options.before}")
    if options.older_than is not None:
        limits.append(f"older than {options.older_than}")
    if options.bytes_max is not None:
        limits.append(f"beyond the newest {options.bytes_max:,} bytes")
    if options.consumed:
        limits.append("that all consumers have acked")
    return " and ".join(limits)


def _is_held(log: tm.Log, options: argparse.Namespace, first: int, next_seq: int) -> bool:
    """Whether a number or a time has named more rows, and a consumer stood in the way."""
    if options.force or first >= next_seq:
        return False
    if not any(pointer + 1 == first for pointer in log.consumers().values()):
        return False
    times = [options.before] if isinstance(options.before, datetime) else []
    if options.older_than is not None:
        times.append(datetime.now(UTC) - options.older_than)
    if isinstance(options.before, int) and first < options.before:
        return True
    row = log.read(first, rows_max=1).first if times else None
    return row is not None and row.time < max(times)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument(
        "--before",
        type=row_or_time,
        metavar="WHERE",
        help="rows in front of this number, or of this time with its zone",
    )
    parser.add_argument(
        "--older-than", type=duration, metavar="TIME", help="rows that are older (12h, 365d)"
    )
    parser.add_argument(
        "--bytes-max",
        type=size,
        metavar="SIZE",
        help="all but the newest rows that take so much, hot and archived (10GiB, 2TB)",
    )
    parser.add_argument(
        "--consumed", action="store_true", help="rows that every consumer has acked"
    )
    parser.add_argument("--force", action="store_true", help="whatever consumers have yet to ack")
    add_lock_wait(parser)
    add_yes(parser)


COMMAND = Command(
    name="trim",
    summary="give up the oldest rows of a log",
    details=DETAILS,
    examples=(
        "tidemill trim orders/ --before 1000001",
        "tidemill trim orders/ --before 2026-11-01T00:00:00Z",
        "tidemill trim orders/ --older-than 365d --bytes-max 2TB",
        "tidemill trim orders/ --consumed",
    ),
    arguments=_arguments,
    run=run,
)
