"""diskcache: push and pull of its cache, in a transaction.

Its Deque is built on these two and counts the rows after each append, which makes it slower.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.data import Pairs


class DiskCache:
    """One cache, which opens a connection for each thread by itself."""

    name = "diskcache"

    def __init__(self, folder: Path, sync: bool) -> None:
        import diskcache

        self._cache: Any = diskcache.Cache(
            str(folder), eviction_policy="none", sqlite_synchronous=2 if sync else 0
        )

    def push(self, rows: Pairs) -> None:
        push = self._cache.push
        with self._cache.transact(retry=True):
            for row in rows:
                push(row)

    def pop(self, count: int) -> Pairs:
        pull = self._cache.pull
        with self._cache.transact(retry=True):
            return [pull()[1] for _ in range(count)]

    def push_one(self, row: tuple[int, bytes]) -> None:
        self._cache.push(row, retry=True)

    def pop_one(self) -> tuple[int, bytes]:
        row: tuple[int, bytes] = self._cache.pull(retry=True)[1]
        return row

    def close(self) -> None:
        self._cache.close()
