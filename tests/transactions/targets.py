"""What transactions are committed to: a queue, and logs, behind one face for tests."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

import tidemill as tm
from tests.log.contract.writing import append, read_all
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging.transaction import StagedPart, Staging
from tidemill.files.state.log_state import Mark
from tidemill.log.contract import LogStore
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.log.on_files.store import FileLog
from tidemill.log.sql.staging import ServerStaging
from tidemill.log.sql.store import ServerLog


class Target(ABC):
    """One queue or log that is there. Rows are texts; a queue orders them by their length."""

    @abstractmethod
    def staging(self, name: str = "load") -> Staging: ...

    @abstractmethod
    def rows(self) -> list[str]:
        """All that can be read, in the order in which it was written."""

    @abstractmethod
    def mark(self, name: str = "load") -> Mark | None: ...

    @abstractmethod
    def write(self, rows: Iterable[str]) -> None:
        """As anybody would, without a transaction."""

    @abstractmethod
    def staged(self) -> int:
        """How many files, or rows of a table, wait to be committed."""

    @abstractmethod
    def lose(self, part: StagedPart) -> None:
        """Take away what was staged."""

    @abstractmethod
    def damage(self, part: StagedPart) -> None:
        """Change one bit of what was staged."""

    def batch(self, rows: Iterable[str]) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array([row.encode() for row in rows], pa.binary())})

    def stage(self, partition: int, rows: Iterable[str], name: str = "load") -> StagedPart:
        """Rows staged by one attempt, in several batches."""
        attempt = self.staging(name).attempt(partition)
        rows = list(rows)
        for start in range(0, len(rows), 3):
            attempt.write(self.batch(rows[start : start + 3]))
        return attempt.finish()


class QueueTarget(Target):
    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        tm.PriorityQueue(path, **options).close()

    def staging(self, name: str = "load") -> Staging:
        return QueueStaging(self.path, name, wait_s=0)

    def batch(self, rows: Iterable[str]) -> pa.RecordBatch:
        payload = super().batch(rows)
        lengths = pa.compute.binary_length(payload.column(0)).cast(pa.int64())
        return payload.add_column(0, "key", lengths)

    def rows(self) -> list[str]:
        with tm.PriorityQueue(self.path, read_only=True) as queue:
            batch = queue.peek(-1)
            items = sorted(zip(batch.seqs.to_pylist(), batch.values.to_pylist(), strict=True))
            return [value.decode() for _, value in items]

    def mark(self, name: str = "load") -> Mark | None:
        with tm.PriorityQueue(self.path) as queue:
            return queue._core.folder.state.log.marks.get(name)

    def write(self, rows: Iterable[str]) -> None:
        with tm.PriorityQueue(self.path) as queue:
            queue.push(self.batch(rows))

    def staged(self) -> int:
        return len(list(self.path.glob("staging/*/*")))

    def lose(self, part: StagedPart) -> None:
        (self.path / "staging" / "load" / part.name).unlink()

    def damage(self, part: StagedPart) -> None:
        path = self.path / "staging" / "load" / part.name
        data = bytearray(path.read_bytes())
        data[-20] ^= 4
        path.write_bytes(data)


class LogTarget(Target):
    """A log, wherever it is."""

    @abstractmethod
    def open(self) -> LogStore: ...

    def rows(self) -> list[str]:
        with self.open() as log:
            return [row.decode() for row in read_all(log)]

    def mark(self, name: str = "load") -> Mark | None:
        with self.open() as log:
            return log.claim().mark(name)

    def write(self, rows: Iterable[str]) -> None:
        with self.open() as log:
            append(log.claim(), [row.encode() for row in rows])


class FileLogTarget(LogTarget, QueueTarget):
    def __init__(self, path: Path, **options: Any) -> None:
        self.path = path
        FileLog(path, **options).close()

    def open(self) -> FileLog:
        return FileLog(self.path)

    def staging(self, name: str = "load") -> Staging:
        return FileLogStaging(self.path, name, wait_s=0)

    def batch(self, rows: Iterable[str]) -> pa.RecordBatch:
        return Target.batch(self, rows)


class MySQLTarget(LogTarget):
    damaged = "CONCAT(LEFT(header, 60), 'x', SUBSTRING(header, 62))"

    def __init__(self, url: str) -> None:
        self.url = url
        ServerLog(url, parallelism=2).close()

    def open(self) -> ServerLog:
        return ServerLog(self.url)

    def staging(self, name: str = "load") -> Staging:
        return ServerStaging(self.url, name, retry_s=5)

    def staged(self) -> int:
        return self._do(f"SELECT COUNT(*) FROM {self._table}")

    def lose(self, part: StagedPart) -> None:
        self._do(f"DELETE FROM {self._table} WHERE attempt = %s", part.name)

    def damage(self, part: StagedPart) -> None:
        self._do(f"UPDATE {self._table} SET header = {self.damaged} WHERE attempt = %s", part.name)

    @property
    def _table(self) -> str:
        return f"queue_{self.url.rpartition('/')[2]}_staging"

    def _do(self, statement: str, *arguments: str) -> int:
        values = [argument.encode() for argument in arguments]
        with self.open() as log:
            rows = log.run(lambda connection: connection.query(statement, *values))
        return int(rows[0][0]) if rows else 0


class PostgresTarget(MySQLTarget):
    damaged = "set_byte(header, 60, get_byte(header, 60) # 4)"
