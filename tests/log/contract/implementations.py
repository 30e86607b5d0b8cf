"""The stores that the suite runs against. A new one is registered here, and by nothing else."""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from tests.files.fake_clock import FakeClock
from tests.services.mariadb import MariaDB
from tests.services.postgres import Postgres
from tidemill.batch import HEADER_BYTES, Layout, LogBatch
from tidemill.clock import Clock
from tidemill.errors import Corrupt
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.format.record import ENVELOPE_BYTES, split_place
from tidemill.files.journal.scan import Found, scan
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.contract import LogStore
from tidemill.log.memory import Shelf
from tidemill.log.on_files.store import FileLog
from tidemill.log.sql.store import ServerLog
from tidemill.log.tiered import TieredLog


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


class ServerBench(Bench):
    """A log on a server, whose tables a test changes by SQL."""

    changed: str  # the frame with a bit changed; arguments: twice the byte's place, counted from 1

    def __init__(
        self, server: MariaDB | Postgres, url: str, tables: str, parallelism: int, clock: Clock
    ) -> None:
        self._server = server
        self._url = url
        self._tables = [f"{tables}_{parallelism:03}_{shard:04}" for shard in range(parallelism)]
        self._parallelism = parallelism
        self._clock = clock
        self._opened: list[LogStore] = []

    def open(self, schema: pa.Schema | None = None) -> LogStore:
        store = ServerLog(
            self._url, schema=schema, parallelism=self._parallelism, clock=self._clock
        )
        self._opened.append(store)
        return store

    def close(self) -> None:
        for store in self._opened:
            store.close()

    def lose(self, seq: int) -> None:
        for table in self._tables:
            self._server.execute(f"DELETE FROM {table} WHERE %s BETWEEN first AND last", seq)

    def damage(self, seq: int) -> None:
        at = HEADER_BYTES + 71
        for table in self._tables:
            self._server.execute(
                f"UPDATE {table} SET frame = {self.changed} WHERE %s BETWEEN first AND last",
                at,
                at,
                seq,
            )


class MySQLBench(ServerBench):
    changed = "INSERT(frame, %s, 1, CHAR(ASCII(SUBSTRING(frame, %s, 1)) ^ 4))"


class PostgresBench(ServerBench):
    changed = "set_byte(frame, %s - 1, get_byte(frame, %s - 1) # 4)"


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
        url, tables = server.url(database, "log"), f"{database}.queue_log"
        bench = MySQLBench(server, url, tables, self.parallelism, clock)
        yield bench
        bench.close()


@dataclass(frozen=True)
class OnPostgres:
    """A log of its own on the server that the tests share."""

    name: str
    parallelism: int

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def start(self, request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
        server = request.getfixturevalue("postgres")
        url = server.url()
        tables = f"queue_{url.rpartition('/')[2]}"
        bench = PostgresBench(server, url, tables, self.parallelism, clock)
        yield bench
        bench.close()


class Mover:
    """Archives all rows that a log has, for all of its users."""

    def __init__(self) -> None:
        # Its name is new each time; what it does to disks is not what is tried out here.
        self._archive = Archive(open_objects(f"memory:{secrets.token_hex(8)}"))
        self._lock = threading.Lock()
        self._archiver: Archiver | None = None
        self._log: LogStore | None = None  # through which it reads

    def move(self, log: LogStore) -> int:
        """Archive; returns the number behind the last row that is archived."""
        with self._lock:
            try:
                # Segments as small as the appends of the suite, so that it loses what it means to.
                sizes = Sizes(segment_rows=3, group_rows=2, manifest_segments=2)
                if self._archiver is None or self._log is not log:
                    self._archiver, self._log = Archiver(log, self._archive, sizes), log
                self._archiver.run(log.ends().next)
            except Corrupt:
                # What was lost or damaged before is for the test to find. Such a folder takes no
                # notes, so that it may have no archive.
                if self._archiver is None:
                    return 0
            return self._archive.known.next


class EagerLog(TieredLog):
    """Has all rows archived before it gives any, so that the store itself gives none."""

    def __init__(self, hot: LogStore, mover: Mover) -> None:
        super().__init__(hot)
        self._mover = mover

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        self._released = self._mover.move(self.hot)
        return super().read(start, rows_max=rows_max, bytes_max=bytes_max)

    def seq_at(self, time_us: int) -> int:
        self._mover.move(self.hot)
        return super().seq_at(time_us)

    def layout(self, start: int, end: int) -> Layout:
        self._mover.move(self.hot)
        return super().layout(start, end)


@dataclass(frozen=True)
class Tiered:
    """A log with an archive, over another implementation."""

    name: str
    hot: Implementation | OnMariaDB | OnPostgres

    def __str__(self) -> str:
        return self.name

    @contextmanager
    def start(self, request: pytest.FixtureRequest, clock: Clock) -> Iterator[Bench]:
        with started(self.hot, request, clock) as bench:
            yield TieredBench(bench)


class TieredBench(Bench):
    def __init__(self, hot: Bench) -> None:
        self._hot = hot
        self._mover = Mover()

    def open(self, schema: pa.Schema | None = None) -> LogStore:
        return EagerLog(self._hot.open(schema), self._mover)

    def lose(self, seq: int) -> None:
        self._hot.lose(seq)

    def damage(self, seq: int) -> None:
        self._hot.damage(seq)


def started(
    implementation: AnyImplementation, request: pytest.FixtureRequest, clock: Clock
) -> AbstractContextManager[Bench]:
    """A fresh bench."""
    if isinstance(implementation, Implementation):
        return implementation.start(request.getfixturevalue("tmp_path"), clock)
    return implementation.start(request, clock)


AnyImplementation: TypeAlias = Implementation | OnMariaDB | OnPostgres | Tiered

FILES = Implementation("files", files(segment_bytes=1_048_576))
SMALL_FILES = Implementation("files-small-segments", files(segment_bytes=16_384, sync="none"))
SHARDS = OnMariaDB("mysql-4-shards", parallelism=4)

IMPLEMENTATIONS: list[AnyImplementation] = [
    Implementation("memory", memory(lanes=1)),
    Implementation("memory-4-lanes", memory(lanes=4)),
    FILES,
    SMALL_FILES,
    OnMariaDB("mysql", parallelism=1),
    SHARDS,
    OnPostgres("postgres", parallelism=1),
    OnPostgres("postgres-4-shards", parallelism=4),
    Tiered("memory-archived", Implementation("memory", memory(lanes=4))),
    Tiered("files-archived", SMALL_FILES),
    Tiered("mysql-archived", SHARDS),
]

__all__ = ["IMPLEMENTATIONS", "AnyImplementation", "Bench", "FakeClock", "OnPostgres", "started"]
