"""`tidemill bench`: how fast push and pop are on this disk."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemill.gateway.arguments import positive
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.refusal import NotFound
from tidemill.limits import BATCH_BYTES_MAX, ITEM_BYTES_MAX

ROUNDS = 5
DETAILS = f"""
{ROUNDS} rounds, interleaved with the floor; medians. The floor of a push is a plain write of as
many bytes, that of a pop is reading them back with their checksum. Both are synced where we are.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.gateway.measurement import measure  # noqa: PLC0415  Others start without it.

    if not options.folder.is_dir():
        raise NotFound(f"there is no folder {options.folder} to measure in")
    with console.progress("measuring") as progress:
        rates = measure(
            options.folder,
            batch_rows=options.batch_rows,
            item_bytes=options.item_bytes,
            batches=options.batches,
            rounds=ROUNDS,
            on_round=progress.show,
        )
    rows = [
        (
            rate.what,
            rate.sync,
            f"{rate.items_per_s:,.0f}",
            f"{rate.floor_items_per_s:,.0f}",
            f"{rate.ratio:.2f} ×",
        )
        for rate in rates
    ]
    words = table(("what", "sync", "items/s", "floor, items/s", "ratio"), rows)
    conditions = {
        "folder": str(options.folder),
        "batch_rows": options.batch_rows,
        "item_bytes": options.item_bytes,
        "batches": options.batches,
        "rounds": ROUNDS,
    }
    told = f"{options.batch_rows:,} items of {options.item_bytes:,} bytes each time"
    document = [
        {
            "what": rate.what,
            "sync": rate.sync,
            "items_per_s": rate.items_per_s,
            "floor_items_per_s": rate.floor_items_per_s,
            "ratio": rate.ratio,
        }
        for rate in rates
    ]
    console.result(f"{told}, in {options.folder}\n\n{words}", {**conditions, "rates": document})


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="on the disk to measure; everything made there is removed (default: this one)",
    )
    for name, default, what in (
        ("--batch-rows", 2_000, "items in each push and pop"),
        ("--item-bytes", 40, "bytes of each item"),
        ("--batches", 100, "pushes in each round"),
    ):
        parser.add_argument(
            name, type=positive, default=default, metavar="N", help=f"{what} (default: {default})"
        )
    parser.set_defaults(check=_check)


def _check(options: argparse.Namespace) -> None:
    if options.item_bytes > ITEM_BYTES_MAX:
        options.parser.error(f"an item has at most {ITEM_BYTES_MAX} bytes")
    if options.item_bytes * options.batch_rows > BATCH_BYTES_MAX:
        options.parser.error(f"a batch has at most {BATCH_BYTES_MAX} bytes")


COMMAND = Command(
    name="bench",
    summary="measure push and pop on this disk, against plain writes and reads",
    details=DETAILS,
    examples=("tidemill bench", "tidemill bench spool/ --item-bytes 1000 --json"),
    arguments=_arguments,
    run=run,
)
