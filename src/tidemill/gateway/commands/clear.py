"""`tidemill clear`: remove everything."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import add_fork, add_queue, add_sync, add_yes
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_queue
from tidemill.shown import counted


def run(options: argparse.Namespace, console: Console) -> None:
    with open_queue(options) as queue:
        end = chosen_end(queue, options)
        console.confirm(
            lambda: f"Remove all {counted(len(end), 'item')} of {options.queue}?",
            is_sure=options.yes,
        )
        cleared = end.clear()
    console.result(f"removed {counted(cleared, 'item')}", {"cleared": cleared})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    add_fork(parser)
    add_yes(parser)
    add_sync(parser)


COMMAND = Command(
    name="clear",
    summary="remove everything from the queue, or from one fork",
    details="On a terminal it asks first. Forks keep their items, unless --fork names one.",
    examples=("tidemill clear spool/", "tidemill clear spool/ --fork audit --yes"),
    arguments=_arguments,
    run=run,
)
