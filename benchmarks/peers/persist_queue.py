"""persist-queue: its queue on SQLite, the fastest of its kinds.

It commits every put and offers no way around; a batch of gets is committed by one `task_done`. Its
own priority queue has no index on the priority and scans the table for every get, so the
first-in-first-out one stands in for it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.data import Pairs


class PersistQueue:
    """One row for each item; shared by threads with `multithreading=True`, as documented."""

    name = "persist-queue"

    def __init__(self, folder: Path, sync: bool) -> None:
        self._one_by_one = _open(folder / "items", sync, auto_commit=True)
        self._by_batch = _open(folder / "batches", sync, auto_commit=False)

    def push(self, rows: Pairs) -> None:
        put = self._by_batch.put
        for row in rows:
            put(row)

    def pop(self, count: int) -> Pairs:
        get = self._by_batch.get_nowait
        rows = [get() for _ in range(count)]
        self._by_batch.task_done()
        return rows

    def push_one(self, row: tuple[int, bytes]) -> None:
        self._one_by_one.put(row)

    def pop_one(self) -> tuple[int, bytes]:
        row: tuple[int, bytes] = self._one_by_one.get_nowait()
        return row

    def close(self) -> None:
        self._one_by_one.close()
        self._by_batch.close()


class PersistQueueOfBatches:
    """One row for a whole batch: fast, but the queue then knows neither items nor their order."""

    name = "persist-queue, a batch as one item"

    def __init__(self, folder: Path, sync: bool) -> None:
        self._queue = _open(folder, sync, auto_commit=True)

    def push(self, rows: object) -> None:
        self._queue.put(rows)

    def pop(self) -> Any:
        return self._queue.get_nowait()

    def close(self) -> None:
        self._queue.close()


def _open(folder: Path, sync: bool, *, auto_commit: bool) -> Any:
    import persistqueue

    queue: Any = persistqueue.SQLiteQueue(
        str(folder), multithreading=True, auto_commit=auto_commit, timeout=60
    )
    # It uses the WAL, at SQLite's default of synchronous = FULL, and has no setting for it.
    for connection in (queue._putter, queue._getter):
        connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")
    return queue
