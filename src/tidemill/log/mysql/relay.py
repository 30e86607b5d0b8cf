"""The relay of an outbox: publishes its rows once each, one relay at a time.

Rows are found by being there. An `id > last` would skip a row whose transaction took longer than
that of a row with a higher id; so every round takes the lowest ids that are there. A row that was
committed before another's INSERT began has the lower id, and is there whenever the other is: it is
published first. Concurrent rows are published by id.

Two ways to publish a round, both safe against a kill anywhere:

- `SameServer`: the rows go into the log, and out of the outbox, in one transaction.
- `Elsewhere` (a folder, another server): the rows are given a round number first, then sent under
  that number, which the log remembers with them, then deleted. A relay that finds rows of a round
  sends them again under the same number, which changes nothing if they had arrived.

One relay at a time: a named lock of the server, which goes with the relay's connection. A relay
that lost its connection without noticing cannot publish either: whoever came after it has claimed
the log, and it is fenced.
"""

from __future__ import annotations

import hashlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tidemill.batch import DEFAULT
from tidemill.closing import Closing
from tidemill.errors import Closed, Locked, SchemaMismatch, TidemillError
from tidemill.log.contract import LogStore
from tidemill.log.frames import encode_rows
from tidemill.log.mysql.address import Address
from tidemill.log.mysql.badges import end_holders, new_badge
from tidemill.log.mysql.connection import Busy, Connection, Lost
from tidemill.log.mysql.patience import Patience
from tidemill.log.mysql.statements import LOCK, OutboxStatements
from tidemill.log.mysql.store import MySQLLog
from tidemill.log.opening import open_store
from tidemill.log.publisher import Publisher

ROWS_PER_ROUND = 1_000
BYTES_PER_ROUND = 4 << 20
POLL_S_MIN = 0.01
POLL_S_MAX = 0.5

Ids = list[int]


class RowsGone(TidemillError):
    """Rows that were to be published are no longer in the outbox: somebody deleted them."""


class Way(ABC):
    """How a round is published."""

    @abstractmethod
    def publish(self, connection: Connection) -> int:
        """Publish one round; returns how many rows it had. May be repeated after `Lost`."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the log."""


class Relay(Closing):
    """Publishes the rows of an outbox to a log. Made by `Outbox.relay()`; use it in `with`."""

    def __init__(
        self,
        address: Address,
        statements: OutboxStatements,
        log: str,
        retry_s: float,
        stopping: threading.Event | None,
        options: dict[str, Any],
    ) -> None:
        self._address = address
        self._retry_s = retry_s
        self._stopping = threading.Event() if stopping is None else stopping
        self._lock = "tidemill-outbox-" + hashlib.sha256(statements.table.encode()).hexdigest()[:40]
        self._connection: Connection | None = None
        self._lost: list[str] = []  # badges
        self._way: Way | None = None
        self.published = 0  # rows, by this relay
        try:
            self._with_patience(lambda _: 0)  # the lock comes first, then the log
            self._way = _way(address, statements, log, options)
        except BaseException:
            self.close()
            raise

    def round(self) -> int:
        """Publish what is there, up to so many rows; returns how many, 0 if there was nothing."""
        way = self._way
        if way is None:
            raise Closed("the relay was closed; start a new one")
        count = self._with_patience(way.publish)
        self.published += count
        return count

    def run(self, *, follow: bool = True) -> int:
        """Publish until `stopping` is set, or until nothing is left; returns how many rows."""
        pause = self.pauses()
        while not self._stopping.is_set():
            count = self.round()
            if not count and not follow:
                break
            pause(count)
        return self.published

    def pauses(self) -> Callable[[int], None]:
        """What waits after each round: longer and longer while rounds have no rows."""
        pause_s = POLL_S_MIN

        def pause(count: int) -> None:
            nonlocal pause_s
            if count:
                pause_s = POLL_S_MIN
                return
            self._stopping.wait(pause_s)
            pause_s = min(2 * pause_s, POLL_S_MAX)

        return pause

    def close(self) -> None:
        """Let another relay publish; twice does no harm."""
        if self._way is not None:
            self._way.close()
            self._way = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _with_patience(self, work: Callable[[Connection], int]) -> int:
        patience = Patience(self._retry_s, self._stopping)
        while True:
            try:
                connection = self._locked()
                return work(connection)
            except RowsGone:
                continue
            except (Lost, Busy) as cause:
                if self._connection is not None:
                    self._lost.append(self._connection.badge)
                    self._connection.close()
                    self._connection = None
                patience.pause(cause)

    def _locked(self) -> Connection:
        """The connection that holds the lock; a new one has to get it first."""
        if self._connection is not None and not self._connection.is_stale:
            return self._connection
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        connection = Connection(self._address, new_badge())
        try:
            # One of this relay's own that fell silent may hold the lock still.
            end_holders(connection, self._lost)
            self._lost = []
            if connection.query(LOCK, self._lock, 1) != [(1,)]:
                raise Locked("another relay of this outbox is running")
        except BaseException as cause:
            connection.close()
            if isinstance(cause, Lost):
                self._lost.append(connection.badge)
            raise
        self._connection = connection
        return connection


def _way(address: Address, statements: OutboxStatements, log: str, options: dict[str, Any]) -> Way:
    store = open_store(log, schema=None, **options)
    try:
        if not store.versions.newest.equals(DEFAULT):
            raise SchemaMismatch(
                f"the log {store.place} has the columns {store.versions.newest.names}; an outbox "
                "publishes the column value alone"
            )
        if isinstance(store, MySQLLog) and store.is_on_server_of(address):
            return SameServer(store, statements)
        return Elsewhere(store, Publisher(store, producer=f"outbox-{address.name}"), statements)
    except BaseException:
        store.close()
        raise


class SameServer(Way):
    """Into the log and out of the outbox in one transaction."""

    def __init__(self, store: MySQLLog, statements: OutboxStatements) -> None:
        self._store = store
        self._statements = statements
        self._writer = store.claim()

    def publish(self, connection: Connection) -> int:
        ids, values = lowest(connection, self._statements)
        if not ids:
            return 0
        payload = pa.record_batch([pa.array(values, pa.binary())], schema=DEFAULT)
        frames = encode_rows(
            payload,
            self._store.versions.newest_fingerprint,
            bytes_max=self._writer.frame_bytes_max,
            setting=self._writer.frame_bytes_setting,
        )

        def take_out(transaction: Connection) -> None:
            if transaction.execute(self._statements.delete, ids) != len(ids):
                raise RowsGone(f"rows of {self._statements.table} were deleted by somebody else")

        self._writer.append(0, self._writer.reserve(len(ids)), frames, also=take_out)
        return len(ids)

    def close(self) -> None:
        self._store.close()


class Elsewhere(Way):
    """Sent under a number, by which a repeated send is known."""

    def __init__(self, store: LogStore, publisher: Publisher, statements: OutboxStatements) -> None:
        self._store = store
        self._publisher = publisher
        self._statements = statements
        self._sent: tuple[int, int] | None = None  # the round, and its rows, that is to be ended

    def publish(self, connection: Connection) -> int:
        if self._sent is not None:
            return self._end(connection)  # The connection was lost in the middle of it.
        number, ids, values = self._begun(connection)
        if not ids:
            ids, values = lowest(connection, self._statements)
            if not ids:
                return 0
            last = self._publisher.last_number
            number = 1 if last is None else last + 1
            if connection.execute(self._statements.begin, number, ids) != len(ids):
                # Half of them may have the number now; so the next look finds a round begun.
                raise RowsGone(f"rows of {self._statements.table} were deleted by somebody else")
        digest = hashlib.sha256(",".join(map(str, ids)).encode()).digest()
        payload = pa.record_batch([pa.array(values, pa.binary())], schema=DEFAULT)
        self._publisher.send(payload, number=number, digest=digest)
        self._sent = (number, len(ids))
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

    def _begun(self, connection: Connection) -> tuple[int, Ids, list[bytes]]:
        """What an earlier relay, or try, did not end."""
        rows = connection.query(self._statements.begun)
        number = int(rows[0][1]) if rows else 0
        return number, [int(row[0]) for row in rows], [bytes(row[2]) for row in rows]


def lowest(connection: Connection, statements: OutboxStatements) -> tuple[Ids, list[bytes]]:
    """The rows with the lowest ids that are there, as many as make a round."""
    found = connection.query(statements.sizes, ROWS_PER_ROUND)
    ids = within([(int(number), int(size)) for number, size in found], BYTES_PER_ROUND)
    if not ids:
        return [], []
    rows = connection.query(statements.values, ids)
    return [int(row[0]) for row in rows], [bytes(row[1]) for row in rows]


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
