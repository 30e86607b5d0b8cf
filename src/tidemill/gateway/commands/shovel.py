"""`tidemill shovel`: move everything to another queue."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import tidemill as tm
from tidemill.errors import InvalidInput
from tidemill.gateway.arguments import Positional, add_fork, add_queue, add_sync
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.opening import (
    check_is_queue,
    chosen_end,
    is_queue,
    open_queue,
    recorded_bucket,
)
from tidemill.gateway.refusal import Stopped
from tidemill.shown import counted

End: TypeAlias = tm.PriorityQueue | tm.Fork

DETAILS = """
The target is made, with the columns and buckets of the source, if it is not there. A crash in the
middle may leave some items in both queues, never in neither: shovel again.
"""


def run(options: argparse.Namespace, console: Console) -> None:
    _check_target(options.queue, options.target)
    with _opened(options) as (end, target):
        moved = _move(end, target, console)
    words = f"moved {counted(moved, 'item')} to {options.target}"
    console.result(words, {"moved": moved, "to": options.target})


@contextmanager
def _opened(options: argparse.Namespace) -> Iterator[tuple[End, tm.PriorityQueue]]:
    """Where the items are, and where they go. Two queues that are there are opened in the order of
    their paths: shovels in opposite directions would each wait for what the other one has.
    """
    is_new = not is_queue(options.target)
    with ExitStack() as opened:
        if not is_new and Path(options.target).resolve() < Path(options.queue).resolve():
            check_is_queue(options.queue)
            target = opened.enter_context(_target(options))
            yield chosen_end(opened.enter_context(open_queue(options)), options), target
            return
        queue = opened.enter_context(open_queue(options))
        # Before a target is made for it.
        end = chosen_end(queue, options)
        yield end, opened.enter_context(_target(options, like=queue if is_new else None))


def _target(
    options: argparse.Namespace, *, like: tm.PriorityQueue | None = None
) -> tm.PriorityQueue:
    return tm.PriorityQueue(
        options.target,
        schema=None if like is None else like.schema,
        bucket=None if like is None else recorded_bucket(options.queue),
        sync=options.sync,
        on_corruption=options.on_corruption,
        lock_wait_s=options.lock_wait_s,
    )


def _move(end: End, target: tm.PriorityQueue, console: Console) -> int:
    total, done = len(end), 0
    with console.progress("moving") as progress, Interrupts() as interrupts:

        def note(moved: int) -> None:
            nonlocal done
            done = moved
            progress.show(moved, moved / total)
            # Between chunks each item is in one of the queues, and only there.
            interrupts.check()

        try:
            with interrupts.held():
                done = end.shovel(target, on_progress=note)
        except KeyboardInterrupt as error:
            words = f"moved {counted(done, 'item')} before this: shovel again for the rest"
            raise Stopped(error, words, {"moved": done}) from error
    return done


def _check_target(queue: str, target: str) -> None:
    """Refuse a target within the folder of the source: it would be no file of that queue."""
    source, goal = Path(queue).resolve(), Path(target).resolve()
    if goal == source:
        raise InvalidInput(f"{target} is the queue itself: name another folder")
    if goal.is_relative_to(source):
        raise InvalidInput(f"{target} lies within the folder of {queue}: name another folder")


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_queue(parser, Positional("target", "the folder of the queue to move to"))
    add_fork(parser)
    add_sync(parser)


COMMAND = Command(
    name="shovel",
    summary="move everything that is left to another queue",
    details=DETAILS,
    examples=("tidemill shovel spool/ archive/", "tidemill shovel spool/ checked/ --fork audit"),
    arguments=_arguments,
    run=run,
)
