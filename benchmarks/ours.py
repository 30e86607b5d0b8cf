"""Our queue as a contestant."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal, TypeAlias

import tidemill as tm
from benchmarks import data
from benchmarks.settings import ITEMS_PER_BATCH, KEY_BYTES, VALUE_BYTES

Form: TypeAlias = Literal["arrow", "objects"]
Sync: TypeAlias = Literal["none", "full"]


class Ours:
    """Takes turns at pushing batches and popping them all again.

    The queue lives on from turn to turn, so that rolling and freeing segments is in the figures.
    """

    name = "tidemill"

    def __init__(
        self,
        folder: Path,
        *,
        sync: Sync,
        batches: int,  # per turn
        in_order: bool = True,  # False: the batches come shuffled
        form: Form | None = None,  # what goes in and comes out; None: Arrow in, and the batch out
    ) -> None:
        self._queue = tm.PriorityQueue(folder, sync=sync)
        self._batches = batches
        self._in_order = in_order
        self._form = form
        self._next_key = 0
        self._verify()

    def turn(self) -> dict[str, float]:
        rows = [
            data.ascending(self._next_key + number * ITEMS_PER_BATCH)
            for number in range(self._batches)
        ]
        self._next_key += self._batches * ITEMS_PER_BATCH
        if not self._in_order:
            rows = [rows[at] for at in data.shuffled(self._batches)]
        pushed = [data.pairs(batch) for batch in rows] if self._form == "objects" else rows
        del rows
        items = self._batches * ITEMS_PER_BATCH
        push_s = self._push(pushed)
        del pushed
        pop_s, popped = self._pop()
        if popped != items or len(self._queue):
            raise RuntimeError(f"{items} items were pushed, but {popped} popped")
        return {"push": push_s / items, "pop": pop_s / items}

    def close(self) -> None:
        self._queue.close()

    def _push(self, pushed: list[object]) -> float:
        push = self._queue.push
        start = time.perf_counter()
        for rows in pushed:
            push(rows)
        return time.perf_counter() - start

    def _pop(self) -> tuple[float, int]:
        pop, form, popped = self._queue.pop, self._form, 0
        start = time.perf_counter()
        for _ in range(self._batches):
            batch = pop(ITEMS_PER_BATCH)
            if form is None:
                popped += len(batch)
            elif form == "arrow":
                popped += batch.to_arrow().num_rows
            else:
                popped += len(batch.rows())
        return time.perf_counter() - start, popped

    def _verify(self) -> None:
        """What goes in comes out, by key; outside the figures."""
        pushed = [data.pairs(data.ascending(start, 100)) for start in (100, 0, 200)]
        for rows in pushed:
            self._queue.push(rows)
        if self._queue.pop(300).rows() != sorted(row for rows in pushed for row in rows):
            raise RuntimeError("the queue gave back other items than were pushed")


def frame_bytes(folder: Path) -> int:
    """What one batch takes in the journal, by the growth of its files."""
    sizes = []
    for batches in (1, 11):
        path = folder / f"frames-{batches}"
        with tm.PriorityQueue(path, sync="none") as queue:
            for number in range(batches):
                queue.push(data.ascending(number * ITEMS_PER_BATCH))
        sizes.append(sum(file.stat().st_size for file in path.rglob("*.segment")))
    frame = (sizes[1] - sizes[0]) // 10
    # A floor that writes too little would make every ratio against it meaningless.
    if frame < ITEMS_PER_BATCH * (VALUE_BYTES + KEY_BYTES):
        raise RuntimeError(f"a batch cannot take {frame} bytes: the segments were not found")
    return frame
