"""`tidemill quarantine`: the damaged records that were set aside, and what is to become of them."""

from __future__ import annotations

import argparse
from pathlib import Path

import tidemill as tm
from tidemill.gateway.arguments import Positional, add_queue, add_yes
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.opening import check_is_queue
from tidemill.shown import counted


def _list(options: argparse.Namespace, console: Console) -> None:
    check_is_queue(options.queue)
    found = tm.doctor.quarantined(options.queue)
    rows = [
        (
            one.name,
            one.kind or "?",
            "?" if one.rows is None else f"{one.rows:,}",
            f"{one.bytes:,}",
            one.reason,
        )
        for one in found
    ]
    words = table(("name", "kind", "items", "bytes", "what is wrong"), rows)
    console.result(
        words if rows else "nothing was set aside",
        {"quarantined": [one.to_json() for one in found]},
    )


def _save(options: argparse.Namespace, console: Console) -> None:
    check_is_queue(options.queue)
    tm.doctor.save(options.queue, options.name, options.to)
    console.result(
        f"saved {options.name} to {options.to}", {"saved": options.name, "to": str(options.to)}
    )


def _push_back(options: argparse.Namespace, console: Console) -> None:
    check_is_queue(options.queue)
    receipt = tm.doctor.push_back(
        options.queue, options.name, unverified=options.unverified, again=options.again
    )
    words = f"pushed {counted(receipt.count, 'item')} of {options.name} back"
    console.result(words, {"pushed": receipt.count, "first": receipt.first, "last": receipt.last})


def _drop(options: argparse.Namespace, console: Console) -> None:
    check_is_queue(options.queue)
    console.confirm(lambda: f"Drop {options.name} for good?", is_sure=options.yes)
    tm.doctor.drop(options.queue, options.name)
    console.result(f"dropped {options.name}", {"dropped": options.name})


def _name(parser: argparse.ArgumentParser) -> None:
    add_queue(parser, Positional("name", "of the record, as `quarantine list` shows it"))


def _save_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument(
        "--to",
        type=Path,
        required=True,
        metavar="FILE",
        help="x.parquet: the rows that still decode; else the bytes as they are",
    )


def _push_back_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    parser.add_argument(
        "--unverified", action="store_true", help="also rows of which some bytes are wrong"
    )
    parser.add_argument("--again", action="store_true", help="also if that was done before")


def _drop_arguments(parser: argparse.ArgumentParser) -> None:
    _name(parser)
    add_yes(parser)


COMMAND = Command(
    name="quarantine",
    summary="list, save, push back or drop damaged records that were set aside",
    children=(
        Command(
            name="list",
            summary="print the records that were set aside",
            examples=("tidemill quarantine list spool/",),
            arguments=add_queue,
            run=_list,
        ),
        Command(
            name="save",
            summary="save a record that was set aside, or the rows of it that still decode",
            examples=("tidemill quarantine save spool/ NAME --to rows.parquet",),
            arguments=_save_arguments,
            run=_save,
        ),
        Command(
            name="push-back",
            summary="push the items of a record that was set aside again",
            examples=("tidemill quarantine push-back spool/ NAME",),
            arguments=_push_back_arguments,
            run=_push_back,
        ),
        Command(
            name="drop",
            summary="give up a record that was set aside, for good",
            details="On a terminal it asks first.",
            examples=("tidemill quarantine drop spool/ NAME --yes",),
            arguments=_drop_arguments,
            run=_drop,
        ),
    ),
)
