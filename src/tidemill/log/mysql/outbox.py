"""The outbox: a table into which an application inserts rows within its own transactions, and from
which a relay publishes them.

    application   BEGIN; INSERT INTO orders …; INSERT INTO outbox_orders (value) VALUES …; COMMIT
    relay         rows that are there ──▶ the log, and out of the table

So a row is published if and only if the application's transaction was committed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tidemill.log.mysql.address import Address
from tidemill.log.mysql.connection import Connection
from tidemill.log.mysql.pool import Pool
from tidemill.log.mysql.relay import Relay
from tidemill.log.mysql.statements import OutboxStatements

RETRY_S = 60.0


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
        self.statements = OutboxStatements(self.address.database, self.address.name)
        self.retry_s = retry_s

    @property
    def table(self) -> str:
        """The name of the table, quoted."""
        return self.statements.table

    def create(self) -> None:
        """Make the table; one that is there stays as it is."""
        self._run(self.statements.create)

    def __len__(self) -> int:
        """How many rows wait to be published."""
        return int(self._run(self.statements.count)[0][0])

    def insert(self, cursor: Any, values: Sequence[bytes]) -> None:
        """Insert rows by a cursor of the application's, within its transaction."""
        cursor.executemany(self.statements.insert, [(value,) for value in values])

    def relay(self, log: str, *, stopping: threading.Event | None = None, **options: Any) -> Relay:
        """The right to publish to the log at the address `log`, whose options follow.

        Raises `Locked` if another relay of this outbox is running. `stopping` ends `Relay.run`.
        """
        return Relay(self.address, self.statements, log, self.retry_s, stopping, options)

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        pool = Pool(self.address, self.retry_s)

        def work(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.query(statement)

        try:
            return pool.run(work)
        finally:
            pool.close()
