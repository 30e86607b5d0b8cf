"""`tidemill doctor`: verify a folder, and repair it as far as told to."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import tidemill as tm
from tidemill.gateway.arguments import add_queue
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import is_folder
from tidemill.gateway.opening import check_is_queue
from tidemill.gateway.refusal import FoundDamage
from tidemill.progress import Progress

DETAILS = """
Without an option it changes nothing, and works beside the owner of the folder. It ends with status
9 if something is damaged. In place of a folder it takes the URL of a log on a server, whose rows it
verifies, and whose settings it looks at.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    if not is_folder(options.queue):
        _verify_on_server(options, console)
        return
    check_is_queue(options.queue)
    if options.repair or options.set_aside:
        with console.progress("repairing") as progress:
            report = tm.doctor.repair(
                options.queue, set_aside=options.set_aside, on_progress=_shown_by(progress)
            )
    else:
        with console.progress("verifying") as progress:
            report = tm.doctor.verify(options.queue, on_progress=_shown_by(progress))
    console.result(str(report), report.to_json())
    if report.worst is tm.doctor.Severity.DAMAGE:
        raise FoundDamage(f"{report.path} is damaged: see the report")


def _verify_on_server(options: argparse.Namespace, console: Console) -> None:
    from tidemill.log.sql.checkup import verify  # noqa: PLC0415 (its driver is an extra)

    if options.repair or options.set_aside:
        raise tm.InvalidInput("a log on a server is verified only: repair its tables there")
    report = verify(options.queue)
    console.result(str(report), report.to_json())
    if report.worst is tm.doctor.Severity.DAMAGE:
        raise FoundDamage(f"{report.place} is damaged: see the report")


def _shown_by(progress: Progress) -> Callable[[tm.doctor.Progress], None]:
    return lambda done: progress.show(
        done.records, done.bytes_done / done.bytes_total if done.bytes_total else None
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    parser.add_argument(
        "--repair", action="store_true", help="make again what is derived from the journal"
    )
    parser.add_argument(
        "--set-aside",
        action="store_true",
        help="also copy damaged records to the quarantine, and leave them out from then on",
    )


COMMAND = Command(
    name="doctor",
    summary="verify a queue or a log, and repair a folder as far as told to",
    details=DETAILS,
    examples=(
        "tidemill doctor spool/",
        "tidemill doctor spool/ --json | jq .findings",
        "tidemill doctor spool/ --repair",
        "tidemill doctor spool/ --set-aside && tidemill quarantine list spool/",
        "tidemill doctor mysql://app@localhost/shop/orders",
    ),
    arguments=_arguments,
    run=run,
)
