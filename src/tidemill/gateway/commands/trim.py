"""`tidemill trim`: give up the oldest rows of a log."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import add_log, add_yes
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import open_log, row_or_time

DETAILS = """
It stops at the slowest consumer, unless --force is given. A folder gives disk back by whole
segments, and only its publisher, or nobody, may have it open.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    with open_log(options) as log:
        before = log.ends()
        if options.force:
            console.confirm(
                lambda: f"Give up rows before {options.before}, whether or not they were received?",
                is_sure=options.yes,
            )
        first = log.trim(options.before, force=options.force)
    words = f"the first row is {first:,}; gave up {first - before.first:,}"
    if isinstance(options.before, int) and first < min(options.before, before.next):
        words += ", up to the slowest consumer: --force goes further"
    console.result(words, {"first": first, "next": before.next, "trimmed": first - before.first})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument(
        "--before",
        type=row_or_time,
        required=True,
        metavar="WHERE",
        help="the number of the first row to keep, or a time with its zone",
    )
    parser.add_argument("--force", action="store_true", help="whatever consumers have yet to ack")
    add_yes(parser)


COMMAND = Command(
    name="trim",
    summary="give up the oldest rows of a log",
    details=DETAILS,
    examples=(
        "tidemill trim orders/ --before 1000001",
        "tidemill trim orders/ --before 2026-11-01T00:00:00Z",
    ),
    arguments=_arguments,
    run=run,
)
