"""A round of a relay: the rows of an outbox that are published together, and two ways to do it.

Both are safe against a kill anywhere:

- `SameServer`: the rows go into the log, and out of the outbox, in one transaction.
- `Elsewhere` (a folder, another server): the rows are given a round number first, then sent under
  that number, which the log remembers with them, then deleted. A relay that finds rows of a round
  sends them again under the same number, which changes nothing if they had arrived.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import xxhash

from tidemill.batch import DEFAULT, project
from tidemill.batch.columns import column_from_values
from tidemill.errors import TidemillError
from tidemill.log.contract import LogStore
from tidemill.log.frames import encode_rows
from tidemill.log.mysql.statements import OutboxStatements
from tidemill.log.publisher import Publisher
from tidemill.log.sends import SOURCED
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.store import ServerLog

ROWS_PER_ROUND = 1_000
BYTES_PER_ROUND = 4 << 20

Ids = list[int]


class RowsGone(TidemillError):
    """Rows that were to be published are no longer in the outbox: somebody deleted them."""


class Round(NamedTuple):
    """Rows of an outbox, by their ids, and as the payload of a log."""

    ids: Ids
    payload: pa.RecordBatch

    @property
    def digest(self) -> bytes:
        """What is in it: the same number for other rows must not pass for a repetition."""
        digest = xxhash.xxh3_128(",".join(map(str, self.ids)).encode())
        for column in self.payload.columns:
            for buffer in column.buffers():
                digest.update(b"" if buffer is None else buffer)
        return digest.digest()


class Way(ABC):
    """How a round is published."""

    @abstractmethod
    def publish(self, connection: Connection) -> int:
        """Publish one round; returns how many rows it had. May be repeated after `Lost`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the log."""


class SameServer(Way):
    """Into the log and out of the outbox in one transaction."""

    def __init__(self, store: ServerLog, statements: OutboxStatements) -> None:
        self._store = store
        self._statements = statements
        self._writer = store.claim()

    def publish(self, connection: Connection) -> int:
        found = lowest(connection, self._statements)
        if found is None:
            return 0
        versions = self._store.versions
        frames = encode_rows(
            project(found.payload, versions.newest),
            versions.newest_fingerprint,
            bytes_max=self._writer.frame_bytes_max,
            setting=self._writer.frame_bytes_setting,
        )

        def take_out(transaction: Connection) -> None:
            if transaction.execute(self._statements.delete, found.ids) != len(found.ids):
                raise RowsGone(f"rows of {self._statements.table} were deleted by somebody else")

        self._writer.append(0, self._writer.reserve(len(found.ids)), frames, also=take_out)
        return len(found.ids)

    def close(self) -> None:
        self._store.close()


class Elsewhere(Way):
    """Sent under a number, by which a repeated send is known."""

    def __init__(self, store: LogStore, address: Address, statements: OutboxStatements) -> None:
        self._store = store
        self._publisher = Publisher(store, producer=_producer(address))
        self._statements = statements
        self._sent: tuple[int, int] | None = None  # the round, and its rows, that is to be ended

    def publish(self, connection: Connection) -> int:
        if self._sent is not None:
            return self._end(connection)  # The connection was lost in the middle of it.
        number, found = self._begun(connection)
        if found is None:
            found = lowest(connection, self._statements)
            if found is None:
                return 0
            last = self._publisher.last_number
            number = 1 if last is None else last + 1
            if connection.execute(self._statements.begin, number, found.ids) != len(found.ids):
                # Half of them may have the number now; so the next look finds a round begun.
                raise RowsGone(f"rows of {self._statements.table} were deleted by somebody else")
        payload = project(found.payload, self._store.versions.newest)
        self._publisher.send(payload, number=number, digest=found.digest)
        self._sent = (number, len(found.ids))
        return self._end(connection)

    def close(self) -> None:
        self._publisher.close()
        self._store.close()

    def _end(self, connection: Connection) -> int:
        """Take the rows of a round out of the outbox. Repeating it changes nothing."""
        number, count = self._sent or (0, 0)
        connection.execute(self._statements.end, number)
        self._sent = None
        return count

    def _begun(self, connection: Connection) -> tuple[int, Round | None]:
        """What an earlier relay, or try, did not end, and the number that it had."""
        rows = connection.query(self._statements.begun)
        number = int(rows[0][0]) if rows else 0
        return number, _round([row[1:] for row in rows], self._statements)


def _producer(address: Address) -> str:
    """Under which name a log remembers the rounds of an outbox: those of the same name in several
    databases must not be taken for each other.
    """
    return f"outbox-{address.name}-{hashlib.sha256(address.database.encode()).hexdigest()[:8]}"


def lowest(connection: Connection, statements: OutboxStatements) -> Round | None:
    """The rows with the lowest ids that are there, as many as make a round; None for none."""
    found = connection.query(statements.sizes, ROWS_PER_ROUND)
    ids = within([(int(number), int(size)) for number, size in found], BYTES_PER_ROUND)
    return _round(connection.query(statements.rows, ids), statements) if ids else None


def _round(rows: Sequence[tuple[Any, ...]], statements: OutboxStatements) -> Round | None:
    if not rows:
        return None
    ids, *columns = zip(*rows, strict=True)
    schema = schema_of(statements)
    arrays = [
        column_from_values(column, field) for column, field in zip(columns, schema, strict=True)
    ]
    return Round(list(map(int, ids)), pa.RecordBatch.from_arrays(arrays, schema=schema))


def schema_of(statements: OutboxStatements) -> pa.Schema:
    """The payload that the columns of an outbox make."""
    return SOURCED if statements.is_sourced else DEFAULT


def within(sizes: Sequence[tuple[int, int]], bytes_max: int) -> Ids:
    """The ids of the first rows that hold so many bytes together; one at least.

    >>> within([(1, 60), (2, 60), (3, 10)], 100), within([(1, 200), (2, 1)], 100), within([], 9)
    ([1], [1], [])
    """
    ids: Ids = []
    total = 0
    for number, size in sizes:
        total += size
        if ids and total > bytes_max:
            break
        ids.append(number)
    return ids
