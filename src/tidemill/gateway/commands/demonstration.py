"""`tidemill demo`: the main job, end to end."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemill.gateway.arguments import positive
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console

PICTURE = Path("tidemill-demo.svg")


def run(options: argparse.Namespace, console: Console) -> None:
    from tidemill.gateway import demo  # noqa: PLC0415  Other commands start without it.

    demo.run(
        items=options.items,
        folder=options.folder,
        picture=options.picture,
        is_json=console.is_json,
        progress=console.progress,
        say=console.line_now,
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--items", type=positive, default=4_000_000, help="how many events (default: %(default)s)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="keep the queue in this folder (default: a temporary one)",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        default=PICTURE,
        metavar="FILE",
        help="where to draw what happened (default: %(default)s)",
    )


COMMAND = Command(
    name="demo",
    summary="push events, crash, reopen, audit and pop: the main job, end to end",
    examples=("tidemill demo", "tidemill demo --items 100000 --folder telemetry/"),
    arguments=_arguments,
    run=run,
)
