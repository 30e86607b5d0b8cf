"""The main job, end to end: telemetry arrives out of order and leaves in order, through a folder
that survives crashes, while an audit reads the same events at its own pace.

It uses the public face alone, and checks what it claims: every event comes out exactly once per
fork, in the order of its time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidemill as tm

BATCH_ROWS = 10_000
START_NS = 1_767_225_600_000_000_000  # 2026-01-01, so that every run shows the same events
SPACING_NS = 1_000_000  # one event each millisecond
DELAY_NS_MAX = 60_000_000_000  # an event may arrive up to a minute late

PAYLOAD = pa.schema([("number", pa.int64()), ("sensor", pa.int32()), ("reading", pa.float64())])


def run(*, items: int, folder: Path | None = None) -> None:
    """Push `items` events, fork, reopen, pop both ends, verify, and print how long it took."""
    with _place(folder) as path:
        with tm.PriorityQueue(path, schema=PAYLOAD) as queue:
            if len(queue):
                raise tm.InvalidInput(f"{path} holds {len(queue):,} items; name a new folder")
            queue.fork("audit")
            with _timed("made and pushed, each batch synced to disk", items):
                for events in telemetry(items):
                    queue.push(events, key="ts")

        start_s = time.perf_counter()
        with tm.PriorityQueue(path) as queue:
            opened_s = time.perf_counter() - start_s
            print(f"{opened_s:10.3f} s  opened again: {len(queue):,} items are waiting")
            with _timed("popped in order and verified", items):
                _drain(queue, items)
            # The audit has an end of its own: it still sees what the first end has consumed.
            with _timed("popped by the audit and verified", items):
                _drain(queue.fork("audit"), items)
    print("Every event came out exactly once on each end, in the order of its time.")


def telemetry(items: int) -> Iterator[pa.Table]:
    """Events by arrival: each is late by up to a minute, so that batches overlap heavily."""
    random = np.random.default_rng(seed=7)
    taken_ns = START_NS + SPACING_NS * np.arange(items, dtype=np.int64)
    arrival = np.argsort(taken_ns + random.integers(0, DELAY_NS_MAX, items), kind="stable")
    for start in range(0, items, BATCH_ROWS):
        number = arrival[start : start + BATCH_ROWS]
        yield pa.table(
            {
                "ts": pa.array(taken_ns[number], pa.timestamp("ns", tz="UTC")),
                "number": pa.array(number, pa.int64()),
                "sensor": pa.array(number % 100, pa.int32()),
                "reading": pa.array(random.normal(20.0, 5.0, len(number))),
            }
        )


def _drain(end: tm.PriorityQueue | tm.Fork, items: int) -> None:
    """Pop until nothing is left. Event n was the n-th to be taken, so that any fault shows."""
    popped = 0
    while len(batch := end.pop(BATCH_ROWS)):
        numbers = batch.to_arrow().column("number").to_numpy()
        if not np.array_equal(numbers, np.arange(popped, popped + len(batch))):
            raise tm.Bug(f"items {popped:,} to {popped + len(batch):,} came out wrong")
        popped += len(batch)
    if popped != items or len(end):
        raise tm.Bug(f"{items:,} items went in, {popped:,} came out, {len(end):,} are left")


@contextmanager
def _place(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as temporary:
        yield Path(temporary) / "telemetry"


@contextmanager
def _timed(what: str, items: int) -> Iterator[None]:
    start_s = time.perf_counter()
    yield
    passed_s = time.perf_counter() - start_s
    print(f"{passed_s:10.3f} s  {what}: {items / passed_s:,.0f} items/s")
