"""sqlite3 with WAL: a priority queue as one would write it by hand.

The table is clustered by (key, id), which was faster than a separate index on the key; taking a
range of it was faster than `DELETE … WHERE id IN (SELECT … LIMIT n) RETURNING`, which gives no
order either.
"""

from __future__ import annotations

import itertools
import sqlite3
import threading
from pathlib import Path

from benchmarks.data import Pairs


class SqliteTable:
    """One connection and a lock, as the documentation of sqlite3 asks for when threads share it."""

    name = "sqlite3"

    def __init__(self, folder: Path, sync: bool) -> None:
        self._lock = threading.Lock()
        self._ids = itertools.count()
        self._connection = sqlite3.connect(
            folder / "queue.db", isolation_level=None, check_same_thread=False
        )
        for statement in (
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}",
            "CREATE TABLE items (key INTEGER NOT NULL, id INTEGER NOT NULL, value BLOB NOT NULL, "
            "PRIMARY KEY (key, id)) WITHOUT ROWID",
        ):
            self._connection.execute(statement)

    def push(self, rows: Pairs) -> None:
        with self._lock:
            numbered = [(key, next(self._ids), value) for key, value in rows]
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("INSERT INTO items VALUES (?, ?, ?)", numbered)
            self._connection.execute("COMMIT")

    def pop(self, count: int) -> Pairs:
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            rows = self._connection.execute(
                "SELECT key, value, id FROM items ORDER BY key, id LIMIT ?", (count,)
            ).fetchall()
            if rows:
                self._connection.execute(
                    "DELETE FROM items WHERE (key, id) <= (?, ?)", (rows[-1][0], rows[-1][2])
                )
            self._connection.execute("COMMIT")
        return [(key, value) for key, value, _ in rows]

    def push_one(self, row: tuple[int, bytes]) -> None:
        with self._lock:
            self._connection.execute(
                "INSERT INTO items VALUES (?, ?, ?)", (row[0], next(self._ids), row[1])
            )

    def pop_one(self) -> tuple[int, bytes]:
        return self.pop(1)[0]

    def close(self) -> None:
        self._connection.close()
