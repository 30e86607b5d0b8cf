"""`tidemill len`: how many items are left."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import add_fork, add_on_corruption, add_queue
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_to_look


def run(options: argparse.Namespace, console: Console) -> None:
    with open_to_look(options) as queue:
        items = len(chosen_end(queue, options))
    console.result(str(items), {"items": items})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    add_fork(parser)
    add_on_corruption(parser)


COMMAND = Command(
    name="len",
    summary="print how many items are left",
    examples=("tidemill len spool/", "tidemill len spool/ --fork audit"),
    arguments=_arguments,
    run=run,
)
