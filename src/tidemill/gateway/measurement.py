"""A quick measurement of push and pop on one disk, against the floor for the same bytes.

Rounds are interleaved, so that both see the same disk, and the figures are medians. It answers
"how fast is it here?"; to compare releases or other queues, run the benchmarks of the repository.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np
import pyarrow as pa

import tidemill as tm
from tidemill.gateway.disk_floor import Floor

KEY_BYTES = 8
_FRAME_BYTES = 512  # about what a frame has beside its rows
_random = np.random.default_rng()


@dataclass(frozen=True, slots=True)
class Rate:
    """Items in a second, ours and the floor's."""

    what: str
    sync: str
    items_per_s: float
    floor_items_per_s: float

    @property
    def ratio(self) -> float:
        return self.items_per_s / self.floor_items_per_s


def measure(
    folder: Path,
    *,
    batch_rows: int,
    item_bytes: int,
    batches: int,  # in each round
    rounds: int,
    on_round: Callable[[int, float], None] = lambda _rounds, _share: None,
) -> list[Rate]:
    """The rates of push and pop in a temporary folder below `folder`, synced and not."""
    rates: list[Rate] = []
    modes: tuple[Literal["full", "none"], ...] = ("full", "none")
    for mode_at, sync in enumerate(modes):
        with tempfile.TemporaryDirectory(dir=folder, prefix="tidemill-bench-") as scratch:
            floor = Floor(
                Path(scratch) / "floor",
                write_bytes=batch_rows * (item_bytes + KEY_BYTES) + _FRAME_BYTES,
                writes=batches,
                items=batch_rows,
                sync=sync == "full",
            )
            ours: list[dict[str, float]] = []
            floors: list[dict[str, float]] = []
            try:
                with tm.PriorityQueue(Path(scratch) / "queue", sync=sync) as queue:
                    for number in range(rounds):
                        rows = [_batch(batch_rows, item_bytes) for _ in range(batches)]
                        ours.append(_turn(queue, rows, batch_rows))
                        floors.append(floor.turn())
                        done = mode_at * rounds + number + 1
                        on_round(done, done / (2 * rounds))
            finally:
                floor.close()
            rates += [
                Rate(
                    what,
                    sync,
                    1 / median(turn[what] for turn in ours),
                    1 / median(turn[what] for turn in floors),
                )
                for what in ("push", "pop")
            ]
    return rates


def _turn(queue: tm.PriorityQueue, rows: list[pa.RecordBatch], batch_rows: int) -> dict[str, float]:
    """Seconds for each item pushed, and popped again."""
    items = sum(batch.num_rows for batch in rows)
    start_s = time.perf_counter()
    for batch in rows:
        queue.push(batch)
    middle_s = time.perf_counter()
    popped = sum(len(queue.pop(batch_rows)) for _ in rows)
    end_s = time.perf_counter()
    if popped != items:
        raise tm.Bug(f"{items} items were pushed, but {popped} popped")
    return {"push": (middle_s - start_s) / items, "pop": (end_s - middle_s) / items}


def _batch(rows: int, item_bytes: int) -> pa.RecordBatch:
    """Ascending times as keys, random bytes as values."""
    keys = time.time_ns() + np.arange(rows, dtype=np.int64)
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(item_bytes)
    data = pa.py_buffer(_random.bytes(rows * item_bytes))
    values = pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])
    return pa.record_batch([pa.array(keys), values], names=["key", "value"])
