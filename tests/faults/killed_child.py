"""The process that gets killed: pushes and pops, and tells what it attempts and what it was told.

    python killed_child.py FOLDER FIRST_VALUE SEED SYNC PIPE

One JSON document a line goes to the pipe: before each call what it attempts, behind it what came
back. A line is written at once, so that all lines but the last are whole when the process is gone.
"""

from __future__ import annotations

import json
import os
import random
import sys

from tests.faults.checker import MAIN, UniqueValues
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.queue.consuming_end import ConsumingEnd
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.state.bucket import Width

FORK = "audit"


def open_queue(folder: str, sync: SyncMode = "full") -> PriorityQueue:
    return PriorityQueue(folder, bucket=Width(64), sync=sync, segment_bytes=16 * 1024)


def main(folder: str, first_value: int, seed: int, sync: SyncMode, pipe: int) -> None:
    def tell(*words: object) -> None:
        os.write(pipe, json.dumps(words).encode() + b"\n")

    draw = random.Random(seed)
    values = UniqueValues(first_value, length=draw.choice([24, 200]))
    queue = open_queue(folder, sync)
    ends: dict[str, ConsumingEnd] = {MAIN: queue, FORK: queue.fork(FORK)}
    tell("opened")
    while True:
        if draw.random() < 0.55:
            pairs = values.pairs(draw.choices(range(200), k=draw.choice([1, 1, 3, 20])))
            tell("push", [[key, value.decode()] for key, value in pairs])
            queue.push(pairs)
            tell("pushed")
        else:
            name = draw.choice(list(ends))
            count = draw.choice([1, 2, 10])
            tell("pop", name, count)
            popped = ends[name].pop(count).rows()
            tell("popped", [[key, value.decode()] for key, value in popped])


if __name__ == "__main__":
    _, path, first, number, mode, descriptor = sys.argv
    main(path, int(first), int(number), mode, int(descriptor))  # type: ignore[arg-type]
