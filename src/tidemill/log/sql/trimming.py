"""Giving up rows: decided in one transaction, removed piece by piece afterwards.

A crash in between leaves rows that nobody can read; the next trim removes them.
"""

from __future__ import annotations

import os

from tidemill.errors import TidemillError
from tidemill.log.refusals import check_unused, publisher_fenced
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.statements import BEGIN, COMMIT, Statements
from tidemill.log.sql.takeover import take_over

ROWS_PER_DELETE = 100  # of a table, so that no transaction is long


def decided(connection: Connection, statements: Statements, before: int, *, force: bool) -> int:
    """Move the first row, as far as consumers allow, and say where it is then."""
    connection.execute(BEGIN)
    (first,) = connection.query_row(statements.first_locked)
    written, _ = connection.query_row(statements.written)
    before = min(before, int(written) + 1)
    if not force:
        # None is being made, since that locks the first row; and those that are there only move on.
        pointers = [int(row[1]) + 1 for row in connection.query(statements.consumers)]
        before = min([before, *pointers])
    if before > int(first):
        connection.execute(statements.set_first, before)
    connection.execute(COMMIT)
    return max(before, int(first))


def begun(connection: Connection, statements: Statements, first: int, place: str) -> None:
    """Let a log without rows begin with this number; whoever published is fenced before."""
    epoch = take_over(connection, statements, os.urandom(16)).epoch
    connection.execute(BEGIN)
    taken, _ = connection.query_row(statements.epoch_locked)
    (least,) = connection.query_row(statements.first_locked)
    written, _ = connection.query_row(statements.written_locked)
    try:
        if int(taken) != epoch:
            raise publisher_fenced(epoch, int(taken))
        check_unused((int(least), int(written) + 1), first, place)
    except TidemillError:
        connection.execute(COMMIT)
        raise
    # Nothing if it was done before, by a try whose answer was lost.
    connection.execute(statements.show, first - 1, 0, epoch, 0)
    connection.execute(statements.set_first, first)
    connection.execute(COMMIT)


def swept(connection: Connection, statements: Statements, first: int) -> None:
    """Remove what lies below the first row; a row that reaches across stays."""
    for delete in statements.delete_below:
        while connection.execute(delete, first, first, ROWS_PER_DELETE) == ROWS_PER_DELETE:
            pass
