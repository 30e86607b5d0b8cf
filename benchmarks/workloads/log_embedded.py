"""The log in a folder against a table in SQLite: packs of rows in, all of them out in order.

Both take lists of bytes and give bytes back. The table has an INTEGER PRIMARY KEY for its numbers,
WAL, one transaction for each pack, and a consumer's pointer that is stored for every 10,000 rows.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

import tidemill as tm
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import VALUE_BYTES, Settings

ROWS_PER_PACK = 200
READ_ROWS = 10_000
SENDERS = 8

_TOGETHER = f"send by {SENDERS} threads"
_COLUMNS = "receive as columns"
_METRICS = ("send", _TOGETHER, "receive", _COLUMNS)


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    for sync in ("none", "full"):
        with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
            results += _run(Path(folder), settings, sync)
    return results


def _run(folder: Path, settings: Settings, sync: str) -> list[Result]:
    packs = 5 * settings.batches(sync)
    contestants: list[Contestant] = [
        OurLog(folder / "ours", packs, sync),
        SqliteLog(folder / "sqlite", packs, sync),
    ]
    medians = interleave(f"log against SQLite, sync {sync}", contestants, settings.rounds)
    ours, peer = medians["tidemill"], medians["sqlite3"]
    return [
        Result(
            f"log in a folder, sync {sync}: {what}",
            1 / ours[what],
            "rows/s",
            1 / peer[what],
            "sqlite3, WAL, a transaction for each pack",
            conditions={"operation": f"{ROWS_PER_PACK} rows of {VALUE_BYTES} bytes; {packs} packs"},
        )
        for what in _METRICS
    ]


def _pack() -> list[bytes]:
    return [b"%d" % number + bytes(VALUE_BYTES - 3) for number in range(100, 100 + ROWS_PER_PACK)]


def _timed(send: Callable[[list[bytes]], object], packs: int, threads: int) -> float:
    """Seconds for each row that so many threads send together."""
    pack = _pack()
    each = packs // threads

    def work() -> None:
        for _ in range(each):
            send(pack)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    start = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (time.perf_counter() - start) / (each * threads * ROWS_PER_PACK)


class OurLog:
    """A fresh log for each turn."""

    name = "tidemill"

    def __init__(self, folder: Path, packs: int, sync: str) -> None:
        self._folder = folder
        self._packs = packs
        self._sync = sync
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        path = self._folder / str(next(self._turns))
        with tm.Log(path, sync=self._sync) as log:
            with log.publisher() as out:
                alone = _timed(out.send, self._packs, 1)
                together = _timed(out.send, self._packs, SENDERS)
            objects = self._receive(log, "objects", lambda batch: len(batch.rows()))
            columns = self._receive(log, "columns", lambda batch: len(batch.values))
        shutil.rmtree(path)
        return {"send": alone, _TOGETHER: together, "receive": objects, _COLUMNS: columns}

    def _receive(self, log: tm.Log, consumer: str, rows_of: Callable[[tm.LogBatch], int]) -> float:
        """Seconds for each row that a new consumer receives and acks."""
        rows = 0
        start = time.perf_counter()
        with log.receiver(consumer, follow=False, rows_max=READ_ROWS) as receiver:
            for batch in receiver:
                rows += rows_of(batch)
                batch.ack()
        return (time.perf_counter() - start) / rows

    def close(self) -> None:
        pass


class SqliteLog:
    """A fresh table for each turn."""

    name = "sqlite3"

    def __init__(self, folder: Path, packs: int, sync: str) -> None:
        self._folder = folder
        self._packs = packs
        self._sync = sync
        self._turns = count()
        self._lock = threading.Lock()

    def turn(self) -> Mapping[str, float]:
        path = self._folder / str(next(self._turns))
        path.mkdir(parents=True)
        self._database = sqlite3.connect(
            path / "log.db", isolation_level=None, check_same_thread=False
        )
        for statement in (
            "PRAGMA journal_mode = WAL",
            f"PRAGMA synchronous = {'FULL' if self._sync == 'full' else 'OFF'}",
            "CREATE TABLE log (seq INTEGER PRIMARY KEY AUTOINCREMENT, value BLOB NOT NULL)",
            "CREATE TABLE pointers (name TEXT PRIMARY KEY, pointer INTEGER NOT NULL)",
            "INSERT INTO pointers VALUES ('bench', 0)",
        ):
            self._database.execute(statement)
        alone = _timed(self._send, self._packs, 1)
        together = _timed(self._send, self._packs, SENDERS)
        start = time.perf_counter()
        rows = self._receive()
        seconds = time.perf_counter() - start
        self._database.close()
        shutil.rmtree(path)
        found = {"send": alone, _TOGETHER: together}
        # It gives objects one way or the other.
        return {**found, "receive": seconds / rows, _COLUMNS: seconds / rows}

    def _send(self, pack: list[bytes]) -> None:
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            self._database.executemany(
                "INSERT INTO log (value) VALUES (?)", [(value,) for value in pack]
            )
            self._database.execute("COMMIT")

    def _receive(self) -> int:
        pointer = rows = 0
        while True:
            found = self._database.execute(
                "SELECT seq, value FROM log WHERE seq > ? ORDER BY seq LIMIT ?",
                (pointer, READ_ROWS),
            ).fetchall()
            if not found:
                return rows
            rows += len(found)
            pointer = found[-1][0]
            self._database.execute(
                "UPDATE pointers SET pointer = ? WHERE name = 'bench'", (pointer,)
            )

    def close(self) -> None:
        pass
