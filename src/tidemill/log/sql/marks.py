"""What is known of producers' last sends, on a server."""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.log.contract import Mark
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.statements import Statements


def stored_mark(connection: Connection, statements: Statements, producer: str) -> Mark | None:
    """The mark of a producer; None if it has none."""
    rows = connection.query(statements.mark, producer.encode())
    if not rows:
        return None
    number, first, last, digest = rows[0]
    return Mark(producer, int(number), int(first), int(last), bytes(digest))


def store_marks(connection: Connection, statements: Statements, marks: Sequence[Mark]) -> None:
    """Store marks within a transaction; of a producer's several the last counts."""
    latest = {mark.producer: mark for mark in marks}.values()
    values = [
        value
        for mark in latest
        for value in (mark.producer.encode(), mark.number, mark.first, mark.last, mark.digest)
    ]
    connection.execute(statements.marks(len(latest)), *values)
