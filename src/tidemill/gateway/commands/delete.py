"""`tidemill delete`: remove a range of keys."""

from __future__ import annotations

import argparse

from tidemill.errors import InvalidInput
from tidemill.gateway.arguments import Positional, add_fork, add_queue, add_sync, add_yes, key
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import chosen_end, open_queue
from tidemill.shown import counted


def run(options: argparse.Namespace, console: Console) -> None:
    low, high = options.low, options.high
    if high < low:
        raise InvalidInput(f"the lower key comes first: {low} to {high} is empty")
    with open_queue(options) as queue:
        end = chosen_end(queue, options)
        console.confirm(
            lambda: f"Delete the items of {options.queue} with keys from {low} to {high}?",
            is_sure=options.yes,
        )
        deleted = end.delete(low, high)
    console.result(f"deleted {counted(deleted, 'item')}", {"deleted": deleted})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(
        parser,
        Positional("low", "the lowest key to delete", key),
        Positional("high", "the highest key to delete", key),
    )
    add_fork(parser)
    add_yes(parser)
    add_sync(parser)


COMMAND = Command(
    name="delete",
    summary="remove the items with keys from LOW to HIGH, both included",
    details="On a terminal it asks first. Forks keep their items, unless --fork names one.",
    examples=("tidemill delete spool/ 0 100", "tidemill delete spool/ -50 -1 --fork audit --yes"),
    arguments=_arguments,
    run=run,
)
