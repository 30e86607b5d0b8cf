"""`tidemill stats`: a look at a queue."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from tidemill.batch.schema import describe
from tidemill.gateway.arguments import add_on_corruption, add_queue
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.opening import open_to_look


def run(options: argparse.Namespace, console: Console) -> None:
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
    columns = ", ".join(
        f"{field.name}: {field.type}" + ("" if field.nullable else " not null") for field in schema
    )
    words = f"columns  {columns}\n\n" + table(("what", "number"), rows)
    console.result(words, {"queue": options.queue, "schema": describe(schema), **asdict(stats)})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="stats",
    summary="print counts and sizes of a queue and its forks",
    examples=("tidemill stats spool/", "tidemill stats spool/ --json | jq .forks"),
    arguments=_arguments,
    run=run,
)
