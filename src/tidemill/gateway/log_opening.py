"""Opens the log that a command names: a folder, or a URL."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tidemill as tm
from tidemill.gateway.arguments import positive
from tidemill.gateway.opening import holds_queue, is_queue
from tidemill.log.opening import is_archive
from tidemill.urls import path_of, scheme_of


def is_folder(address: str) -> bool:
    """Whether a log is named by its folder.

    >>> is_folder("orders/"), is_folder("mysql://host/db/orders"), is_folder("file:orders")
    (True, False, True)
    """
    return scheme_of(address) == "file"


def exists(address: str) -> bool:
    """Whether there is something in the folder of a log; what a server has, only it knows."""
    return not is_folder(address) or is_queue(path_of(address))


@contextmanager
def open_log(options: argparse.Namespace, **more: Any) -> Iterator[tm.Log]:
    """The log that is there; only a command that sends makes one."""
    address = options.queue
    refuse_archive(address)
    if not exists(address):
        folder = Path(path_of(address))
        there = f"{folder} holds no log" if folder.exists() else f"there is no folder {folder}"
        raise tm.NotAQueue(f"{there}; `tidemill send` makes one")
    with tm.Log(address, create=False, **more) as log:
        yield log


def is_log(address: str) -> bool:
    """Whether there is a log, or the archive of one; what a server has, only it knows."""
    if not is_folder(address) or is_archive(address):
        return True
    return is_queue(path_of(address)) and not holds_queue(path_of(address))


def refuse_archive(address: str) -> None:
    """Say what can be done with an archive, to which nobody sends and which has no consumers."""
    if is_archive(address):
        raise tm.ReadOnly(
            f"{address} is the archive of a log, and is only read: `tidemill scan` shows its rows, "
            "`tidemill restore` makes a log of them"
        )


@contextmanager
def open_either(options: argparse.Namespace) -> Iterator[tm.Log | tm.PriorityQueue]:
    """The log that is there, or the queue, which another process may own."""
    address = options.queue
    if is_folder(address) and holds_queue(path_of(address)):
        with tm.PriorityQueue(path_of(address), read_only=True) as queue:
            yield queue
        return
    with open_log(options) as log:
        yield log


def to_own(options: argparse.Namespace) -> dict[str, Any]:
    """What a log in a folder is told by a command that writes. A server has its own locks, and
    nobody writes to an archive.
    """
    from tidemill.log.opening import is_archive  # noqa: PLC0415 (most do without)

    has_lock = is_folder(options.queue) and not is_archive(options.queue)
    return {"lock_wait_s": options.lock_wait_s} if has_lock else {}


def row_or_time(text: str) -> int | datetime:
    """The number of a row, or a time with its zone.

    >>> row_or_time("17"), row_or_time("2026-11-15T12:00:00Z").isoformat()
    (17, '2026-11-15T12:00:00+00:00')
    """
    try:
        number = int(text)
    except ValueError:
        return moment(text, "neither the number of a row nor a time")
    if number < 1:
        raise argparse.ArgumentTypeError(f"rows are numbered from 1 on, not {text}")
    return number


def start(text: str) -> str | int | datetime:
    """Where a new consumer begins."""
    return text if text in ("earliest", "latest") else row_or_time(text)


def moment(text: str, otherwise: str = "no time") -> datetime:
    """A time with its zone.

    >>> moment("2026-11-15T13:00:00+01:00").isoformat()
    '2026-11-15T12:00:00+00:00'
    """
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is {otherwise} such as 2026-11-15T12:00:00Z"
        ) from None
    if found.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone: add Z for UTC, or +01:00")
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise argparse.ArgumentTypeError(
            f"{text!r} lies beyond the years that UTC has, 1 to 9999"
        ) from None


def add_bounds(parser: argparse.ArgumentParser) -> None:
    """Which rows, by number and by time."""
    parser.add_argument(
        "--from", dest="first", type=positive, metavar="SEQ", help="from this row on"
    )
    parser.add_argument("--to", dest="last", type=positive, metavar="SEQ", help="up to this row")
    parser.add_argument("--since", type=moment, metavar="TIME", help="rows written at this time on")
    parser.add_argument("--until", type=moment, metavar="TIME", help="rows written up to this time")
