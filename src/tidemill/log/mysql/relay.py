"""The relay of an outbox: publishes its rows once each, one relay at a time.

Rows are found by being there. An `id > last` would skip a row whose transaction took longer than
that of a row with a higher id; so every round takes the lowest ids that are there. A row that was
committed before another's INSERT began has the lower id, and is there whenever the other is: it is
published first. Concurrent rows are published by id.

One relay at a time: a named lock of the server, which goes with the relay's connection. A relay
that lost its connection without noticing cannot publish either: whoever came after it has claimed
the log, and it is fenced.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from tidemill.batch import SchemaVersions
from tidemill.closing import Closing
from tidemill.errors import Closed, InvalidInput, Locked, NotAQueue, SchemaMismatch
from tidemill.log.mysql.connection import MySQLConnection
from tidemill.log.mysql.rounds import Elsewhere, RowsGone, SameServer, Way, schema_of
from tidemill.log.mysql.statements import OUTBOX_COLUMNS, OutboxStatements
from tidemill.log.opening import open_store
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import end_holders, new_badge
from tidemill.log.sql.connection import Busy, Connection, Lost
from tidemill.log.sql.patience import Patience
from tidemill.log.sql.store import ServerLog
from tidemill.log.tiered import TieredLog

POLL_S_MIN = 0.01
POLL_S_MAX = 0.5

T = TypeVar("T")


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
            # The lock comes first, then the log.
            found = self._with_patience(lambda connection: columns(connection, address))
            self._way = _way(address, statements.of_columns(found), log, options)
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

    def _with_patience(self, work: Callable[[Connection], T]) -> T:
        patience = Patience(self._retry_s, self._stopping)
        while True:
            try:
                connection = self._locked()
                return work(connection)
            except RowsGone:
                continue
            except (Lost, Busy) as cause:
                self._drop()
                patience.pause(cause)

    def _drop(self) -> None:
        """Let a connection go that the server may not hear of, and keep the lock for."""
        if self._connection is not None:
            self._lost.append(self._connection.badge)
            self._connection.close()
            self._connection = None

    def _locked(self) -> Connection:
        """The connection that holds the lock; a new one has to get it first."""
        if self._connection is not None and not self._connection.is_stale:
            return self._connection
        self._drop()
        connection = MySQLConnection(self._address, new_badge())
        try:
            # One of this relay's own that fell silent may hold the lock still.
            end_holders(connection, self._lost)
            self._lost = []
            if not connection.take_lock(self._lock, 1):
                raise Locked("another relay of this outbox is running")
        except BaseException as cause:
            connection.close()
            if isinstance(cause, Lost):
                self._lost.append(connection.badge)
            raise
        self._connection = connection
        return connection


def columns(connection: Connection, address: Address) -> list[str]:
    """The names of the columns of an outbox."""
    table = f"outbox_{address.name}"
    found = [str(name) for (name,) in connection.query(OUTBOX_COLUMNS, address.database, table)]
    if not found:
        raise NotAQueue(f"the table {table} is not there: make it with `tidemill outbox create`")
    return found


def _way(address: Address, statements: OutboxStatements, log: str, options: dict[str, Any]) -> Way:
    schema = schema_of(statements)
    store = _opened(log, schema, options)
    try:
        try:
            SchemaVersions([schema]).evolve(store.versions.newest)
        except SchemaMismatch as cause:
            raise SchemaMismatch(
                f"the log {store.place} has the columns {store.versions.newest.names}, which "
                f"cannot hold those of the outbox, {schema.names}: {cause}"
            ) from cause
        if isinstance(store.hot, ServerLog) and store.hot.is_on_server_of(address):
            return SameServer(store.hot, statements)
        return Elsewhere(store, address, statements)
    except BaseException:
        store.close()
        raise


def _opened(log: str, schema: pa.Schema, options: dict[str, Any]) -> TieredLog:
    """The log as it is; one that is not there is made with the columns of the outbox."""
    if str(log).startswith("memory:"):
        raise InvalidInput(
            "rows of an outbox would be gone with a log in memory: give a folder or mysql://"
        )
    try:
        return open_store(log, schema=None, **{**options, "create": False})
    except NotAQueue:
        if not options.get("create", True):
            raise
        return open_store(log, schema=schema, **options)
