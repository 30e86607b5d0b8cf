"""`tidemill restore`: put the rows of an archive back into a log."""

from __future__ import annotations

import argparse

import tidemill as tm
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.shown import counted

DETAILS = """
Rows keep the numbers and times that they had: the log begins where the archive does, and goes on
behind it. Every file is compared with its checksum. The log is made if it is not there; one that
has other rows is refused. What was interrupted, and what was archived since, is restored by the
same command again. Consumers are not in an archive. Credentials for s3:// come from the environment
(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY).
"""


def run(options: argparse.Namespace, console: Console) -> None:
    done = tm.Restored(0, 0, 0, 0)
    with Interrupts() as interrupts:

        def show(step: tm.Restored, rows: int) -> None:
            nonlocal done
            done = step
            progress.show(step.rows, step.rows / max(1, rows))
            interrupts.check()  # Between two segments: all that was done counts.

        try:
            with interrupts.held(), console.progress("restoring") as progress:
                done = tm.restore(options.archive, options.log, on_progress=show)
        except KeyboardInterrupt:
            _say(console, done)
            raise
    _say(console, done)


def _say(console: Console, done: tm.Restored) -> None:
    words = (
        f"restored {counted(done.rows, 'row')} from {counted(done.segments, 'segment')}, "
        f"{done.bytes:,} bytes; the next row is {done.next:,}"
    )
    console.result(words, {"rows": done.rows, **done._asdict()})


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "archive", metavar="ARCHIVE", help="the archive: a folder, or s3://bucket/prefix"
    )
    parser.add_argument(
        "log",
        metavar="LOG",
        help="the folder of the log, or mysql:// or postgresql://user@host/database/name",
    )


COMMAND = Command(
    name="restore",
    summary="put the rows of an archive back into a log",
    details=DETAILS,
    examples=(
        "tidemill restore orders-archive/ orders/",
        "tidemill restore s3://backups/orders mysql://app@localhost/shop/orders",
    ),
    arguments=_arguments,
    run=run,
)
