"""Making the tables of a log, and bringing them up to date.

`tidemill_logs` says for each log of a database how many shards it has and which layout its tables
have. A log is registered first, with layout 0, which has no tables; each migration leads from one
layout to the next, and the first makes the tables. So a crash anywhere is mended by whoever opens
the log next, and the parallelism that counts is the one that was registered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from tidemill.errors import Corrupt, InvalidInput, NotAQueue, StorageFailed, UnknownFormat
from tidemill.limits import PARALLELISM_MAX
from tidemill.log.sql.connection import Busy, Connection, Duplicate
from tidemill.log.sql.dialect import Dialect
from tidemill.log.sql.statements import REGISTERED, SET_LAYOUT, Statements
from tidemill.names import check_unique

PARALLELISM = 4  # of a log that is made without saying
_LOCK_S = 10

Migration = Callable[[Connection, Statements], None]


def _create(connection: Connection, statements: Statements) -> None:
    for statement in statements.create:
        connection.execute(statement)


def _add_staging(connection: Connection, statements: Statements) -> None:
    for statement in statements.create_staging:
        connection.execute(statement)


# From layout n to layout n + 1. Each can be repeated, because a crash may come after half of it:
# the server commits every change of a table by itself.
MIGRATIONS: Sequence[Migration] = (_create, _add_staging)


def open_tables(
    connection: Connection,
    dialect: Dialect,
    name: str,
    parallelism: int | None,
    *,
    create: bool,
    migrations: Sequence[Migration] = MIGRATIONS,
) -> Statements:
    """The statements for a log whose tables are there and up to date.

    Raises `InvalidInput` if it has another parallelism than the one given, `NotAQueue` if it is not
    there and shall not be made, `UnknownFormat` if a newer version has changed its tables.
    """
    if parallelism is not None and not 1 <= parallelism <= PARALLELISM_MAX:
        raise InvalidInput(f"parallelism must be 1 to {PARALLELISM_MAX}, not {parallelism}")
    found = _registered(connection, name)
    if found is None or found[1] < len(migrations):
        if found is None and not create:
            raise NotAQueue(f"the database has no log named {name!r}: send to it, or create it")
        found = _bring_up_to_date(connection, dialect, name, parallelism, migrations)
    recorded, layout = found
    if layout > len(migrations):
        raise UnknownFormat(
            f"the tables of log {name!r} have layout {layout}, this version knows "
            f"{len(migrations)}: use a newer version"
        )
    if parallelism not in (None, recorded):
        raise InvalidInput(
            f"log {name!r} has a parallelism of {recorded}, not {parallelism}; it cannot be changed"
        )
    statements = dialect.statements(name, recorded)
    _check(connection, statements)
    return statements


def _registered(connection: Connection, name: str) -> tuple[int, int] | None:
    """(parallelism, layout), None if there is no such log."""
    if not connection.tables(["tidemill_logs"]):
        return None
    rows = connection.query(REGISTERED, name.lower().encode())
    if not rows:
        return None
    found, parallelism, layout = rows[0]
    check_unique(name, [found.decode()], what="log")
    return int(parallelism), int(layout)


def _bring_up_to_date(
    connection: Connection,
    dialect: Dialect,
    name: str,
    parallelism: int | None,
    migrations: Sequence[Migration],
) -> tuple[int, int]:
    # One at a time. The server gives the lock back if this connection ends.
    lock = "tidemill:" + hashlib.sha256(name.lower().encode()).hexdigest()[:40]
    if not connection.take_lock(lock, _LOCK_S):
        raise Busy("another process is making or changing the tables")
    try:
        statements = dialect.statements(name, parallelism or PARALLELISM)
        try:
            connection.execute(statements.registry)
        except Duplicate as cause:
            raise Busy("another log is being made, the first of this database") from cause
        connection.execute(
            statements.register, name.encode(), name.lower().encode(), len(statements.shards)
        )
        found = _registered(connection, name)
        if found is None:
            raise Corrupt(f"log {name!r} was registered in tidemill_logs and is not there")
        recorded, layout = found
        if parallelism in (None, recorded):
            for number in range(layout, len(migrations)):
                migrations[number](connection, dialect.statements(name, recorded))
                connection.execute(SET_LAYOUT, number + 1, name.encode(), number)
                layout = number + 1
        return recorded, layout
    finally:
        connection.give_lock(lock)


def _check(connection: Connection, statements: Statements) -> None:
    """Every table is there, in a form that keeps what is written."""
    found = connection.tables(statements.tables)
    for table in statements.tables:
        problem = found.get(table.lower())
        if problem is None:
            raise Corrupt(f"table {table} is missing: restore it from a backup")
        if problem:
            raise StorageFailed(f"table {table} {problem}")
