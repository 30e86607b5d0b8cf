"""`tidemill fork`: list, create and remove the independent consuming ends of a queue."""

from __future__ import annotations

import argparse

from tidemill.gateway.arguments import Positional, add_on_corruption, add_queue, add_sync, add_yes
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.opening import named_fork, open_queue, open_to_look
from tidemill.shown import counted


def _list(options: argparse.Namespace, console: Console) -> None:
    with open_to_look(options) as queue:
        forks = queue.stats().forks
    rows = [(name, f"{items:,}") for name, items in forks.items()]
    words = table(("fork", "items"), rows) if rows else "no forks"
    console.result(
        words, {"forks": [{"name": name, "items": items} for name, items in forks.items()]}
    )


def _create(options: argparse.Namespace, console: Console) -> None:
    with open_queue(options) as queue:
        is_new = options.name not in queue.forks()
        parent = queue if options.of is None else named_fork(queue, options.of)
        fork = parent.fork(options.name)
        items = len(fork)
    made = "made" if is_new else "there already:"
    words = f"{made} fork {options.name} with {counted(items, 'item')}"
    console.result(words, {"fork": options.name, "items": items, "created": is_new})


def _remove(options: argparse.Namespace, console: Console) -> None:
    with open_queue(options) as queue:
        fork = named_fork(queue, options.name)
        items = len(fork)
        console.confirm(
            lambda: f"Remove fork {options.name} with {counted(items, 'item')}?",
            is_sure=options.yes,
        )
        fork.remove()
    words = f"removed fork {options.name}, which had {counted(items, 'item')} left"
    console.result(words, {"fork": options.name, "items": items, "removed": True})


def _list_arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser)
    add_on_corruption(parser)


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser, Positional("name", "of the fork"))
    parser.add_argument(
        "--of", metavar="FORK", help="start where this fork stands (default: the queue's own end)"
    )
    add_sync(parser)


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser, Positional("name", "of the fork"))
    add_yes(parser)
    add_sync(parser)


COMMAND = Command(
    name="fork",
    summary="list, create or remove forks, the independent consuming ends",
    children=(
        Command(
            name="list",
            summary="print the forks and how many items each has left",
            examples=("tidemill fork list spool/",),
            arguments=_list_arguments,
            run=_list,
        ),
        Command(
            name="create",
            summary="make a fork; one that exists stays as it is",
            examples=(
                "tidemill fork create spool/ audit",
                "tidemill fork create spool/ retry --of audit",
            ),
            arguments=_create_arguments,
            run=_create,
        ),
        Command(
            name="remove",
            summary="end a fork; what only it had left is given back to the disk",
            details="On a terminal it asks first.",
            examples=("tidemill fork remove spool/ audit --yes",),
            arguments=_remove_arguments,
            run=_remove,
        ),
    ),
)
