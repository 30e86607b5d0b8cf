"""Pushes overlapping batches and pops them, in a process of its own."""

from __future__ import annotations

import time

import tidemill as tm
from benchmarks import data
from benchmarks.child import Answer, serve
from benchmarks.memory import peak_mb
from benchmarks.settings import ITEMS_PER_BATCH


def measure(folder: str, batches: int, pushes_between: bool) -> Answer:
    """Rates of push and pop, and the peak of memory; each batch is made between the clocks."""
    imported_mb = peak_mb()
    clock = time.perf_counter
    fill_s = pop_s = push_s = 0.0
    with tm.PriorityQueue(folder, sync="none") as queue:
        for _ in range(batches):
            rows = data.scattered()
            start = clock()
            queue.push(rows)
            fill_s += clock() - start
        last = -1
        for _ in range(batches):
            start = clock()
            popped = queue.pop(ITEMS_PER_BATCH)
            pop_s += clock() - start
            _check(popped, last if not pushes_between else -1)
            last = popped.keys[-1].as_py()
            if pushes_between:
                rows = data.scattered()
                start = clock()
                queue.push(rows)
                push_s += clock() - start
        left = len(queue)
    if left != (batches * ITEMS_PER_BATCH if pushes_between else 0):
        raise RuntimeError(f"{left} items are left")
    items = batches * ITEMS_PER_BATCH
    return {
        "pop_items_per_s": items / pop_s,
        "push_items_per_s": items / (push_s if pushes_between else fill_s),
        "peak_mb": peak_mb(),
        "imported_mb": imported_mb,
    }


def _check(popped: tm.Batch, last: int) -> None:
    keys = popped.keys.to_numpy()
    if len(keys) != ITEMS_PER_BATCH or keys[0] < last or (keys[1:] < keys[:-1]).any():
        raise RuntimeError("the queue gave items out of order")


if __name__ == "__main__":
    serve({"measure": measure})
