"""The process that gets killed in the middle of anything: it follows a script that its parent knows
as well, and tells how far it got.

    python scripted_child.py FOLDER FIRST_VALUE SEED SYNC PIPE

Before each step its number goes to the pipe, and again behind it. What a step does follows from the
seed, the forks there are when the queue is opened, and the first value alone.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tests.faults.checker import MAIN, Pair, PrefixModel, UniqueValues
from tests.faults.driven_queue import end_of
from tests.faults.killed_child import open_queue
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.queue.priority_queue import PriorityQueue

FORKS = ("a", "b", "c", "d")
KEYS = 200


class Step(NamedTuple):
    """One call, by what it does to the model and to a queue."""

    note: Callable[[PrefixModel], object]
    do: Callable[[PriorityQueue], object]


def script(first_value: int, seed: int, forks: list[str]) -> Iterator[Step]:
    """Steps without end, for a queue that has these forks."""
    draw = random.Random(seed)
    values = UniqueValues(first_value, length=draw.choice([24, 200]))
    ends = [MAIN, *sorted(forks)]
    while True:
        end = draw.choice(ends)
        match draw.choices(
            ["push", "pop", "read", "delete", "clear", "fork", "remove", "upkeep", "sync"],
            [40, 20, 8, 6, 1, 6, 3, 4, 2],
        )[0]:
            case "push":
                yield _push(values.pairs(draw.choices(range(KEYS), k=draw.choice([1, 1, 3, 20]))))
            case "pop":
                yield _pop(end, draw.choice([1, 2, 10]))
            case "read":
                yield _read(end, draw.choice([1, 4]), values.pairs([draw.randrange(KEYS)]))
            case "delete":
                low = draw.randrange(KEYS)
                yield _delete(end, low, low + draw.choice([0, 5, 60]))
            case "clear":
                yield _clear(end)
            case "fork":
                name = draw.choice(FORKS)
                ends += [] if name in ends else [name]
                yield _fork(name, end)
            # The queue itself cannot be removed: then there is no step this time.
            case "remove" if end != MAIN:
                ends.remove(end)
                yield _remove(end)
            case "upkeep":
                yield Step(
                    lambda model: model.nothing("upkeep"),
                    lambda queue: queue._core.maintenance.run_round(),
                )
            case "sync":
                yield Step(lambda model: model.nothing("sync"), lambda queue: queue.sync())


def _push(pairs: list[Pair]) -> Step:
    return Step(lambda model: model.push(pairs), lambda queue: queue.push(pairs))


def _pop(end: str, count: int) -> Step:
    return Step(lambda model: model.pop(end, count), lambda queue: end_of(queue, end).pop(count))


def _read(end: str, count: int, pairs: list[Pair]) -> Step:
    def read(queue: PriorityQueue) -> None:
        with end_of(queue, end).read(count) as found:
            found.push(pairs)

    return Step(lambda model: model.pop_and_push(end, count, pairs), read)


def _delete(end: str, low: int, high: int) -> Step:
    return Step(
        lambda model: model.delete(end, low, high),
        lambda queue: end_of(queue, end).delete(low, high),
    )


def _clear(end: str) -> Step:
    return Step(lambda model: model.clear(end), lambda queue: end_of(queue, end).clear())


def _fork(name: str, parent: str) -> Step:
    return Step(
        lambda model: model.fork(name, parent), lambda queue: end_of(queue, parent).fork(name)
    )


def _remove(name: str) -> Step:
    return Step(lambda model: model.remove(name), lambda queue: queue.fork(name).remove())


def main(folder: str, first_value: int, seed: int, sync: SyncMode, pipe: int) -> None:
    def tell(*words: object) -> None:
        os.write(pipe, json.dumps(words).encode() + b"\n")

    queue = open_queue(folder, sync)
    tell("opened")
    for number, step in enumerate(script(first_value, seed, queue.forks()), 1):
        tell("tries", number)
        step.do(queue)
        tell("did", number)


if __name__ == "__main__":
    _, path, first, number, mode, descriptor = sys.argv
    main(path, int(first), int(number), mode, int(descriptor))  # type: ignore[arg-type]
