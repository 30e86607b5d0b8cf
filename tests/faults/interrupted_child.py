"""The process that is interrupted: signals fall into the calls of its main thread, while others
push and pop. Each round has a folder of its own, and is judged by items.

    python -m tests.faults.interrupted_child FOLDER SEED SYNC ROUNDS

It prints how often each thing happened, as JSON. A violation ends it with a traceback, and so does
a thread that does not come back.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import tidemill as tm
from tests.faults.checker import MAIN, Pair, UniqueValues
from tests.faults.driven_queue import contents
from tests.faults.history import History
from tests.interrupted_rounds import do_rounds, fall_into_calls, join
from tests.interrupting import Interrupts
from tidemill.errors import StorageFailed
from tidemill.files.folder.folder_options import SyncMode

THREADS = 3
CALLS = 60  # of the main thread in a round, unless the queue has to be opened again before
AT_FIRST = 1_000  # items, so that no pop finds fewer than it asks for: the judge counts on it


class Round:
    """One queue, and all who work on it."""

    def __init__(self, queue: tm.PriorityQueue, values: UniqueValues) -> None:
        self._queue = queue
        self._values = values
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self.history = History()

    def push(self, keys: list[int]) -> None:
        pairs = self._values.pairs(keys)
        self._push(self.history.push_attempted(pairs), pairs)

    def step(self, draw: random.Random) -> Callable[[], None]:
        """A push or a pop, noted before it is tried; called, it is noted when it returned."""
        with self._lock:
            if draw.random() < 0.5:
                pairs = self._values.pairs(draw.choices(range(50), k=draw.choice([1, 1, 3, 20])))
                number = self.history.push_attempted(pairs)
                return lambda: self._push(number, pairs)
            count = draw.choice([1, 2, 10])
            number = self.history.pop_attempted(count)
            return lambda: self._pop(number, count)

    def _push(self, number: int, pairs: list[Pair]) -> None:
        self._queue.push(pairs)
        with self._lock:
            self.history.push_acknowledged(number)

    def _pop(self, number: int, count: int) -> None:
        rows = self._queue.pop(count).rows()
        with self._lock:
            self.history.pop_acknowledged(number, rows)

    def work(self, draw: random.Random) -> None:
        """What the other threads do, until the round is over or the queue says so."""
        try:
            while not self._is_over.is_set():
                self.step(draw)()
        except StorageFailed:
            self._is_over.set()
        except BaseException as failure:  # noqa: BLE001 (raised again by whoever joins)
            self._failures.append(failure)

    @contextmanager
    def others(self, draw: random.Random) -> Iterator[threading.Event]:
        """While the block runs, other threads work."""
        seeds = [random.Random(draw.random()) for _ in range(THREADS)]
        threads = [threading.Thread(target=self.work, args=[seed], daemon=True) for seed in seeds]
        for thread in threads:
            thread.start()
        yield self._is_over
        self._is_over.set()
        join(threads)
        if self._failures:
            raise self._failures[0]


def run(folder: Path, draw: random.Random, sync: SyncMode) -> Counter[str]:
    """One round; how often each thing happened."""
    values = UniqueValues(length=draw.choice([24, 200]))
    queue = tm.PriorityQueue(folder, sync=sync, segment_bytes=draw.choice([32 * 1024, 1 << 20]))
    work = Round(queue, values)
    work.push(draw.choices(range(50), k=AT_FIRST))
    interrupts = Interrupts(draw)
    with work.others(draw) as is_over:
        happened = fall_into_calls(interrupts, CALLS, lambda: work.step(draw), is_over)
    queue.close()
    with tm.PriorityQueue(folder, sync="none") as left:
        work.history.check({MAIN: contents(left)[MAIN]})
    happened["pushes"] = sum(push.acknowledged is not None for push in work.history.pushes)
    happened["pops"] = sum(pop.pairs is not None for pop in work.history.pops)
    return happened


def main(folder: str, seed: int, sync: SyncMode, rounds: int) -> None:
    draw = random.Random(seed)
    do_rounds(Path(folder), rounds, lambda path: run(path, draw, sync))


if __name__ == "__main__":
    _, at, number, mode, count = sys.argv
    main(at, int(number), mode, int(count))  # type: ignore[arg-type]
