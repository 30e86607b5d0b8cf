"""`tidemill doctor`: verify a folder, a log or an archive, and repair it as far as told to."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Protocol

import tidemill as tm
from tidemill.gateway.arguments import add_queue_or_log
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.log_opening import is_folder
from tidemill.gateway.opening import check_is_queue, holds_queue
from tidemill.gateway.refusal import FoundDamage
from tidemill.progress import Progress

DETAILS = """
Without an option it changes nothing, and works beside the owner of the folder. It ends with status
9 if something is damaged. In place of a folder it takes the URL of a log on a server, whose rows it
verifies, and whose settings it looks at; or an archive, a folder or s3://bucket/prefix, of which it
reads the manifest and the end of each file, and with --deep every byte. The archive of a log is
looked at with the log.
"""


class _Report(Protocol):
    @property
    def worst(self) -> tm.doctor.Severity | None: ...

    def to_json(self) -> dict[str, Any]: ...


def run(options: argparse.Namespace, console: Console) -> None:
    address = options.queue
    if _is_archive(address):
        report = _archive_of(address, options, console)
        assert report is not None  # It is one.
        _say(console, address, report, None)
    elif is_folder(address):
        check_is_queue(address)
        _verify_folder(options, console)
    else:
        _verify_on_server(options, console)


def _is_archive(address: str) -> bool:
    if not is_folder(address):
        return address.lower().startswith("s3:")
    from tidemill.log.opening import is_archive  # noqa: PLC0415 (most do without)

    return is_archive(address)


def _verify_folder(options: argparse.Namespace, console: Console) -> None:
    if options.repair or options.set_aside:
        with console.progress("repairing") as progress:
            report = tm.doctor.repair(
                options.queue, set_aside=options.set_aside, on_progress=_shown_by(progress)
            )
    else:
        with console.progress("verifying") as progress:
            report = tm.doctor.verify(options.queue, on_progress=_shown_by(progress))
    archive = None
    # A folder that is damaged may not open; and what it says of its archive may be wrong.
    if report.worst is not tm.doctor.Severity.DAMAGE and not holds_queue(options.queue):
        archive = _archive_beside(report, options, console, read_only=True)
    _say(console, str(report.path), report, archive)


def _verify_on_server(options: argparse.Namespace, console: Console) -> None:
    from tidemill.log.sql.checkup import verify  # noqa: PLC0415 (its driver is an extra)

    if options.repair or options.set_aside:
        raise tm.InvalidInput("a log on a server is verified only: repair its tables there")
    report = verify(options.queue)
    archive = _archive_beside(report, options, console, create=False)
    _say(console, report.place, report, archive)


def _archive_beside(
    report: _Report, options: argparse.Namespace, console: Console, **more: Any
) -> _Report | None:
    """The report on the archive of a log; that on the log is said also if this cannot be made."""
    try:
        return _archive_of(options.queue, options, console, **more)
    except tm.TidemillError:
        console.result(str(report), report.to_json())
        raise


def _archive_of(
    address: str, options: argparse.Namespace, console: Console, **more: Any
) -> _Report | None:
    """The report on an archive, or on that of a log; None if the log has none."""
    from tidemill.log.archive.archive import Archive  # noqa: PLC0415 (most do without)
    from tidemill.log.archive.checkup import verify  # noqa: PLC0415
    from tidemill.log.archive.place import open_objects  # noqa: PLC0415
    from tidemill.log.opening import open_store  # noqa: PLC0415

    with console.progress("verifying the archive") as progress:
        how = {
            "deep": options.deep,
            "repair": options.repair,
            "on_progress": _shown_by(progress),
        }
        if not more:
            if options.set_aside:
                raise tm.InvalidInput("nothing of an archive is set aside: restore it from a copy")
            # Opened here, and not as a log, for its manifest may be damaged.
            return verify(Archive(open_objects(address)), **how)
        with open_store(address, schema=None, **more) as log:
            archive = log.archive()
            return None if archive is None else verify(archive, log=log.hot, **how)


def _say(console: Console, place: str, report: _Report, archive: _Report | None) -> None:
    words, document = str(report), report.to_json()
    if archive is not None:
        words, document = f"{words}\n{archive}", {**document, "archive": archive.to_json()}
    console.result(words, document)
    if any(one and one.worst is tm.doctor.Severity.DAMAGE for one in (report, archive)):
        raise FoundDamage(f"{place} is damaged: see the report")


def _shown_by(progress: Progress) -> Callable[[tm.doctor.Progress], None]:
    return lambda done: progress.show(
        done.records, done.bytes_done / done.bytes_total if done.bytes_total else None
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue_or_log(parser)
    parser.add_argument(
        "--repair",
        action="store_true",
        help="make again what is derived from the journal; remove what crashes left in an archive",
    )
    parser.add_argument(
        "--set-aside",
        action="store_true",
        help="also copy damaged records to the quarantine, and leave them out from then on",
    )
    parser.add_argument(
        "--deep", action="store_true", help="read every byte of an archive, not just its ends"
    )


COMMAND = Command(
    name="doctor",
    summary="verify a queue, a log or an archive, and repair it as far as told to",
    details=DETAILS,
    examples=(
        "tidemill doctor spool/",
        "tidemill doctor spool/ --json | jq .findings",
        "tidemill doctor spool/ --repair",
        "tidemill doctor spool/ --set-aside && tidemill quarantine list spool/",
        "tidemill doctor mysql://app@localhost/shop/orders",
        "tidemill doctor s3://backups/orders --deep",
    ),
    arguments=_arguments,
    run=run,
)
