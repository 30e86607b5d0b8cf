"""The command `tidemill`: parse the arguments, call, print, and turn errors into an exit status.

Exit status: 0 done, 1 an error of ours (its message is on standard error), 2 wrong usage.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import tidemill as tm
from tidemill.gateway import demo


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; without arguments, those of the process."""
    options = _parser().parse_args(arguments)
    try:
        demo.run(items=options.items, folder=options.folder)
    except tm.TidemillError as error:
        print(f"tidemill: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tidemill", description="Durable queues on Arrow batches, in a folder."
    )
    parser.add_argument("--version", action="version", version=f"tidemill {tm.__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    command = commands.add_parser(
        "demo", help="push, fork, reopen, pop and verify a million telemetry events"
    )
    command.add_argument(
        "--items", type=_positive, default=1_000_000, help="how many events (default: %(default)s)"
    )
    command.add_argument(
        "--folder", type=Path, help="keep the queue in this folder (default: a temporary one)"
    )
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


if __name__ == "__main__":
    sys.exit(main())
