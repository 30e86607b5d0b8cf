"""The stores that the suite runs against. A new one is registered here, and by nothing else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.files.fake_clock import FakeClock
from tests.services.mariadb import MariaDB
from tidemill.batch import HEADER_BYTES
from tidemill.clock import Clock
from tidemill.files.filesystem import LocalFileSystem
from tidemill.files.record import ENVELOPE_BYTES, split_place
from tidemill.files.scan import Found, scan
from tidemill.log.contract import LogStore
from tidemill.log.memory import Shelf
from tidemill.log.mysql.store import MySQLLog
from tidemill.log.on_files.store import FileLog


class Bench(ABC):
    """One log, and what a test may do to it beside using it."""

    @abstractmethod
    def open(self, schema: pa.Schema | None = None) -> LogStore:
        """Another user of the same log; closed by the test or with the bench."""

    @abstractmethod
    def lose(self, seq: int) -> None:
        """Take away the frame that holds this row, behind the store's back. Every store that is
        open was closed before.
        """

    @abstractmethod
    def damage(self, seq: int) -> None:
        """Change one bit of the body of the frame that holds this row. Every store that is open was
        closed before.
        """


@dataclass(frozen=True)
class Implementation:
    """How to get a fresh bench; `start` skips the test with a reason if its service is missing."""

    name: str
    start: Callable[[Path, Clock], AbstractContextManager[Bench]]

    def __str__(self) -> str:
        return self.name


class MemoryBench(Bench):
    def __init__(self, lanes: int, clock: Clock) -> None:
        self._shelf = Shelf(lanes=lanes, clock=clock)
        self._opened: list[LogStore] = []

    def open(self, schema: pa.Schema | None = None) -> LogStore:
        self._opened.append(self._shelf.open(schema))
        return self._opened[-1]

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def lose(self, seq: int) -> None:
        index = self._index(seq)
        del self._shelf.frames[index], self._shelf.lasts[index]

    def damage(self, seq: int) -> None:
        index = self._index(seq)
        frame = bytearray(self._shelf.frames[index])
        frame[HEADER_BYTES + 70] ^= 4
        self._shelf.frames[index] = bytes(frame)

    def _index(self, seq: int) -> int:
        return next(index for index, last in enumerate(self._shelf.lasts) if last >= seq)


def memory(lanes: int) -> Callable[[Path, Clock], AbstractContextManager[Bench]]:
    @contextmanager
    def start(folder: Path, clock: Clock) -> Iterator[Bench]:
        bench = MemoryBench(lanes, clock)
        yield bench
        bench.close()

    return start


class FileBench(Bench):
    def __init__(self, path: Path, clock: Clock, options: dict[str, Any]) -> None:
        self._path = path
        self._clock = clock
        self._options = options
        self._opened: list[LogStore] = []

    def open(self, schema: pa.Schema | None = None) -> LogStore:
        store = FileLog(self._path, schema=schema, clock=self._clock, **self._options)
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def lose(self, seq: int) -> None:
        path, offset, length = self._record(seq)
        with path.open("r+b") as file:
            file.seek(offset)
            file.write(bytes(length))

    def damage(self, seq: int) -> None:
        path, offset, _ = self._record(seq)
        with path.open("r+b") as file:
            file.seek(offset + ENVELOPE_BYTES + HEADER_BYTES + 70)
            (byte,) = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte ^ 4]))

    def _record(self, seq: int) -> tuple[Path, int, int]:
        """(segment, offset, bytes) of the record that holds this row."""
        for path in sorted((self._path / "journal").glob("*.segment")):
            file = LocalFileSystem().open(path)
            for found in scan(file, int(path.stem), []):
                if not isinstance(found, Found) or found.header is None:
                    continue
                if found.header.first_seq <= seq < found.header.first_seq + found.header.rows:
                    file.close()
                    offset = split_place(found.envelope.place)[1]
                    return path, offset, found.envelope.total_bytes
            file.close()
        raise AssertionError(f"no frame holds row {seq}")


def files(**options: Any) -> Callable[[Path, Clock], AbstractContextManager[Bench]]:
    @contextmanager
    def start(folder: Path, clock: Clock) -> Iterator[Bench]:
        bench = FileBench(folder / "log", clock, options)
        yield bench
        bench.close()

    return start


class MySQLBench(Bench):
    def __init__(self, server: MariaDB, database: str, parallelism: int, clock: Clock) -> None:
        self._server = server
        self._database = database
        self._parallelism = parallelism
        self._clock = clock
        self._opened: list[LogStore] = []

    def open(self, schema: pa.Schema | None = None) -> LogStore:
        store = MySQLLog(
            self._server.url(self._database, "log"),
            schema=schema,
            parallelism=self._parallelism,
            clock=self._clock,
        )
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def lose(self, seq: int) -> None:
        for table in self._tables():
            self._server.execute(f"DELETE FROM {table} WHERE %s BETWEEN first AND last", seq)

    def damage(self, seq: int) -> None:
        at = HEADER_BYTES + 71  # counted from 1
        for table in self._tables():
            self._server.execute(
                f"UPDATE {table} SET frame = INSERT(frame, %s, 1, "
                "CHAR(ASCII(SUBSTRING(frame, %s, 1)) ^ 4)) WHERE %s BETWEEN first AND last",
                at,
                at,
                seq,
            )

    def _tables(self) -> list[str]:
        count = self._parallelism
        return [f"{self._database}.queue_log_{count:03}_{shard:04}" for shard in range(count)]


@dataclass(frozen=True)
class OnMariaDB:
    """A log on the server that the tests share, in a database of its own."""

    name: str
    parallelism: int

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def start(self, request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
        database = request.getfixturevalue("database")
        server = request.getfixturevalue("mariadb")
        bench = MySQLBench(server, database, self.parallelism, clock)
        yield bench
        bench.close()


IMPLEMENTATIONS: list[Implementation | OnMariaDB] = [
    Implementation("memory", memory(lanes=1)),
    Implementation("memory-4-lanes", memory(lanes=4)),
    Implementation("files", files(segment_bytes=1_048_576)),
    Implementation("files-small-segments", files(segment_bytes=16_384, sync="none")),
    OnMariaDB("mysql", parallelism=1),
    OnMariaDB("mysql-4-shards", parallelism=4),
]

__all__ = ["IMPLEMENTATIONS", "Bench", "FakeClock", "Implementation", "OnMariaDB"]
