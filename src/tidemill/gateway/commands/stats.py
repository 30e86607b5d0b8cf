"""`tidemill stats`: a look at a queue, a log or an archive."""

from __future__ import annotations

import argparse
from dataclasses import asdict

import pyarrow as pa

import tidemill as tm
from tidemill.batch.schema import describe
from tidemill.gateway.arguments import add_on_corruption, add_queue_or_log
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.log_opening import is_log
from tidemill.gateway.opening import open_to_look
from tidemill.urls import without_password

DETAILS = """
Of a log, or of an archive by itself, it prints which rows there are, and how many consumers.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    if is_log(options.queue):
        _run_on_log(options, console)
        return
    with open_to_look(options) as queue:
        stats = queue.stats()
        schema = queue.schema
    rows = [
        ("items", f"{stats.items:,}"),
        *((f"items of fork {name}", f"{items:,}") for name, items in stats.forks.items()),
        ("next arrival number", f"{stats.next_seq:,}"),
        ("buckets", f"{stats.buckets:,}"),
        ("segments", f"{stats.segments:,}"),
        ("bytes on disk", f"{stats.disk_bytes:,}"),
        ("cuts", f"{stats.cuts:,}"),
        ("quarantined records", f"{stats.quarantined:,}"),
        ("dropped items", f"{stats.dropped:,}"),
    ]
    document = {"queue": options.queue, "schema": describe(schema), **asdict(stats)}
    console.result(_words(schema, rows), document)


def _run_on_log(options: argparse.Namespace, console: Console) -> None:
    with tm.Log(options.queue, create=False) as log:
        ends = log.ends()
        schema = log.schema
        consumers = log.consumers()
    rows = [
        ("rows", f"{ends.next - ends.first:,}"),
        ("first row", f"{ends.first:,}"),
        ("next row", f"{ends.next:,}"),
        *((f"lag of {name}", f"{ends.next - 1 - at:,}") for name, at in sorted(consumers.items())),
    ]
    document = {
        "log": without_password(options.queue),
        "schema": describe(schema),
        **ends._asdict(),
    }
    document |= {"rows": ends.next - ends.first, "consumers": consumers}
    console.result(_words(schema, rows), document)


def _words(schema: pa.Schema, rows: list[tuple[str, str]]) -> str:
    columns = ", ".join(
        f"{field.name}: {field.type}" + ("" if field.nullable else " not null") for field in schema
    )
    return f"columns  {columns}\n\n" + table(("what", "number"), rows)


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue_or_log(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="stats",
    summary="print counts and sizes of a queue and its forks, or of a log",
    details=DETAILS,
    examples=(
        "tidemill stats spool/",
        "tidemill stats spool/ --json | jq .forks",
        "tidemill stats orders/ --json | jq .next",
    ),
    arguments=_arguments,
    run=run,
)
