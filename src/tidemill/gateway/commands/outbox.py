"""`tidemill outbox`: make the table that an application inserts into, and publish its rows."""

from __future__ import annotations

import argparse

import tidemill as tm
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.shown import counted


def _create(options: argparse.Namespace, console: Console) -> None:
    outbox = tm.Outbox(options.outbox)
    outbox.create(sourced=options.sourced)
    columns = [*tm.SOURCED.names] if options.sourced else ["value"]
    words = (
        f"the table {outbox.table} is there; insert into it within your transactions:\n"
        f"  INSERT INTO {outbox.table} ({', '.join(columns)}) VALUES (...)"
    )
    console.result(words, {"table": outbox.table, "columns": columns})


def _relay(options: argparse.Namespace, console: Console) -> None:
    published = 0
    with Interrupts() as interrupts, tm.Outbox(options.outbox).relay(options.log) as relay:
        pause = relay.pauses()
        try:
            while True:
                with interrupts.held():
                    count = relay.round()
                published += count
                if not count and options.once:
                    break
                pause(count)
        except KeyboardInterrupt:
            _say(console, published)
            raise
    _say(console, published)


def _say(console: Console, published: int) -> None:
    console.result(f"published {counted(published, 'row')}", {"published": published})


def _add_outbox(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "outbox", metavar="OUTBOX", help="mysql://user@host:3306/database/name: table outbox_<name>"
    )


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    _add_outbox(parser)
    parser.add_argument(
        "--sourced",
        action="store_true",
        help="with columns for where rows come from: source_type, source_id, source_name",
    )


def _relay_arguments(parser: argparse.ArgumentParser) -> None:
    _add_outbox(parser)
    parser.add_argument("log", metavar="LOG", help="the log to publish to: a folder or a URL")
    parser.add_argument(
        "--once", action="store_true", help="end when the outbox is empty, instead of waiting"
    )


COMMAND = Command(
    name="outbox",
    summary="publish what an application inserts into a table within its transactions",
    children=(
        Command(
            name="create",
            summary="make the table; one that is there stays as it is",
            examples=(
                "tidemill outbox create mysql://app@localhost/shop/orders",
                "tidemill outbox create mysql://app@localhost/shop/events --sourced",
            ),
            arguments=_create_arguments,
            run=_create,
        ),
        Command(
            name="relay",
            summary="publish the rows of an outbox to a log, once each",
            details="One relay runs at a time; it may be killed at any moment.",
            examples=(
                "tidemill outbox relay mysql://app@localhost/shop/orders "
                "mysql://app@localhost/shop/orders",
                "tidemill outbox relay mysql://app@localhost/shop/orders orders/ --once",
            ),
            arguments=_relay_arguments,
            run=_relay,
        ),
    ),
)
