"""The outbox: a table into which an application inserts rows within its own transactions, and from
which a relay publishes them.

    application   BEGIN; INSERT INTO orders …; INSERT INTO outbox_orders (value) VALUES …; COMMIT
    relay         rows that are there ──▶ the log, and out of the table

So a row is published if and only if the application's transaction was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.errors import InvalidInput, SchemaMismatch
from tidemill.log.mysql.relay import Relay, columns
from tidemill.log.mysql.statements import OutboxStatements
from tidemill.log.sends import Sourced, serialized
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.pool import Pool

RETRY_S = 60.0

T = TypeVar("T")


class Outbox:
    """A table `outbox_<name>` on MySQL or MariaDB, from which a relay publishes.

    The application inserts into it itself, in its own transaction: ``INSERT INTO outbox_orders
    (value) VALUES (…)``, or by `insert`.

    >>> import tidemill as tm
    >>> tm.Outbox("mysql://app@db.example/shop/orders").table
    '`shop`.`outbox_orders`'
    """

    def __init__(self, url: str, *, retry_s: float = RETRY_S) -> None:
        """`retry_s` is how long a call tries again when the server is away."""
        self.address = Address.parse(url)
        if self.address.scheme != "mysql":
            raise InvalidInput(
                f"an outbox is a table on MySQL or MariaDB, not at {self.address.scheme}: insert "
                "into one there, or send to the log itself"
            )
        self.statements = OutboxStatements(self.address.database, self.address.name)
        self.retry_s = retry_s

    @property
    def table(self) -> str:
        """The name of the table, quoted."""
        return self.statements.table

    def create(self, *, sourced: bool = False) -> None:
        """Make the table; one that is there stays as it is.

        With `sourced` its rows say where they come from, and become rows of a log with the schema
        `tm.SOURCED`. A table that is there with other columns is a `SchemaMismatch`.
        """
        made = OutboxStatements(self.address.database, self.address.name, is_sourced=sourced)

        def work(connection: Connection) -> None:
            connection.execute(made.create)
            found = columns(connection, self.address)
            if made.of_columns(found).is_sourced != sourced:
                raise SchemaMismatch(
                    f"the table {self.table} is there with the columns {', '.join(found)}: drop it "
                    f"once it is empty, or create it {'without' if sourced else 'with'} sourced"
                )

        self._run(work)

    def __len__(self) -> int:
        """How many rows wait to be published."""
        return self._run(lambda connection: int(connection.query(self.statements.count)[0][0]))

    def insert(self, cursor: Any, rows: Sequence[Any]) -> None:
        """Insert rows by a cursor of the application's, within its transaction.

        They are bytes or protobuf messages; in a table made with `sourced`, `tm.Sourced`.
        """
        sourced = [isinstance(row, Sourced) for row in rows]
        if any(sourced) and not all(sourced):
            raise SchemaMismatch("not every row is a Sourced: insert them apart from others")
        if any(sourced):
            values = serialized([row.value for row in rows])
            rows = [row._replace(value=value) for row, value in zip(rows, values, strict=True)]
        else:
            rows = [(value,) for value in serialized(rows)]
        address = self.address
        statements = OutboxStatements(address.database, address.name, is_sourced=any(sourced))
        cursor.executemany(statements.insert, rows)

    def relay(self, log: str, *, stopping: threading.Event | None = None, **options: Any) -> Relay:
        """The right to publish to the log at the address `log`, whose options follow.

        Raises `Locked` if another relay of this outbox is running. `stopping` ends `Relay.run`.
        """
        return Relay(self.address, self.statements, log, self.retry_s, stopping, options)

    def _run(self, work: Callable[[Connection], T]) -> T:
        pool = Pool(self.address, self.retry_s)
        try:
            return pool.run(work)
        finally:
            pool.close()
