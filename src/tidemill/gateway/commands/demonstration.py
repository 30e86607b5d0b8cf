"""`tidemill demo`: the main job, end to end."""

from __future__ import annotations

import argparse
from pathlib import Path

from tidemill.gateway import demo
from tidemill.gateway.arguments import positive
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console


def run(options: argparse.Namespace, _console: Console) -> None:
    demo.run(items=options.items, folder=options.folder)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--items", type=positive, default=1_000_000, help="how many events (default: %(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the queue in this folder (default: a temporary one)"
    )


COMMAND = Command(
    name="demo",
    summary="push, fork, reopen, pop and verify a million telemetry events",
    examples=("tidemill demo", "tidemill demo --items 100000 --folder telemetry/"),
    arguments=_arguments,
    run=run,
)
