"""Holds one queue at its size, in a process of its own, and measures what the next operations cost.

Two orders of keys:

    ascending   each batch follows on the one before
    random      keys anywhere in the 96 buckets above the least one queued, as of timers: what is
                popped leaves at the low end and what is pushed lands anywhere, so that the spread
                stays the same however long this goes on
"""

from __future__ import annotations

import time

import pyarrow as pa

import tidemill as tm
from benchmarks import data
from benchmarks.child import Answer, serve
from benchmarks.memory import peak_mb
from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES

BUCKETS = 96
_ONES_AT_ONCE = 10_000  # items made between two clocks
_QUIET_S_MAX = 600.0

_clock = time.perf_counter


class Holder:
    """The queue and where its keys stand."""

    def __init__(self) -> None:
        self._queue: tm.PriorityQueue | None = None
        self._order = "ascending"
        self._next_key = 0  # of ascending keys
        self._head = 0  # the least key queued, about

    @property
    def queue(self) -> tm.PriorityQueue:
        if self._queue is None:
            raise RuntimeError("open a queue first")
        return self._queue

    def open(self, folder: str, order: str, next_key: int = 0) -> Answer:
        imported_mb = peak_mb()
        start = _clock()
        self._queue = tm.PriorityQueue(folder, sync="none")
        items = len(self._queue)
        open_s = _clock() - start
        self._order, self._next_key = order, next_key
        return {"open_s": open_s, "items": items, "imported_mb": imported_mb, "peak_mb": peak_mb()}

    def fill(self, items: int) -> Answer:
        start = _clock()
        for _ in range(items // ITEMS_PER_BATCH):
            self.queue.push(self._batch())
        return {"fill_s": _clock() - start, "items": len(self.queue)}

    def quieten(self, still_s: float) -> Answer:
        """Wait until upkeep in the background has changed nothing for a while."""
        self.queue.sync()
        start = changed = _clock()
        seen = None
        while _clock() - changed < still_s and _clock() - start < _QUIET_S_MAX:
            stats = self.queue.stats()
            now = (stats.segments, stats.disk_bytes, stats.cuts)
            if now != seen:
                seen, changed = now, _clock()
            time.sleep(still_s / 10)
        return {"waited_s": _clock() - start, "disk_bytes": self.queue.stats().disk_bytes}

    def round(self, operations: int) -> Answer:
        """Push and pop in turn, so that the size stays what it is."""
        push_s = pop_s = 0.0
        for _ in range(operations):
            rows = self._batch()
            start = _clock()
            self.queue.push(rows)
            push_s += _clock() - start
            start = _clock()
            popped = self.queue.pop(ITEMS_PER_BATCH)
            pop_s += _clock() - start
            if len(popped) != ITEMS_PER_BATCH:
                raise RuntimeError(f"a pop gave {len(popped)} items")
            self._head = popped.keys[-1].as_py()
        return {"push_s": push_s / operations, "pop_s": pop_s / operations, "peak_mb": peak_mb()}

    def churn(self) -> Answer:
        """Push until killed."""
        print('{"churning": true}', flush=True)
        while True:
            self.queue.push(self._batch())

    def push_ones(self, items: int) -> Answer:
        push_s, push = 0.0, self.queue.push
        for first in range(0, items, _ONES_AT_ONCE):
            keys = range(first, min(first + _ONES_AT_ONCE, items))
            rows = [[(key, data.random_bytes(VALUE_BYTES))] for key in keys]
            start = _clock()
            for row in rows:
                push(row)
            push_s += _clock() - start
        return {"push_s": push_s / items, "items": len(self.queue), "peak_mb": peak_mb()}

    def close(self) -> Answer:
        self.queue.close()
        return {"next_key": self._next_key, "peak_mb": peak_mb()}

    def _batch(self) -> pa.RecordBatch:
        if self._order == "random":
            return data.scattered(BUCKETS, start=self._head)
        rows = data.ascending(self._next_key)
        self._next_key += ITEMS_PER_BATCH
        return rows


if __name__ == "__main__":
    holder = Holder()
    serve(
        {
            "open": holder.open,
            "fill": holder.fill,
            "quieten": holder.quieten,
            "round": holder.round,
            "churn": holder.churn,
            "push_ones": holder.push_ones,
            "close": holder.close,
        }
    )
