"""What an append tells the server: rows, the pointer over them, the producers' marks.

Everything is written under an epoch, and finds out in the same statement whether that is still the
newest: `Overtaken`. An append of one row, as nearly all are, is one round trip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.log.contract import Mark, NoteChange
from tidemill.log.refusals import note_changed
from tidemill.log.sql.connection import Connection, check_one, values_of
from tidemill.log.sql.marks import store_marks
from tidemill.log.sql.rows import PackedRow
from tidemill.log.sql.statements import COMMIT, Statements
from tidemill.log.sql.under_way import Numbers

Also = Callable[[Connection], None]


def write_rows(
    connection: Connection,
    statements: Statements,
    lane: int,
    rows: Sequence[PackedRow],
    numbers: Numbers,
    epoch: int,
) -> None:
    """The rows alone, committed."""
    if _fit_together(connection, rows):
        connection.write_row(statements, lane, rows[0], numbers.time_us, epoch)
        return
    connection.begin()
    for row in rows:
        _insert(connection, statements, lane, row, numbers.time_us, epoch)
    connection.execute(COMMIT)


def write_and_show(
    connection: Connection,
    statements: Statements,
    lane: int,
    rows: Sequence[PackedRow],
    numbers: Numbers,
    marks: Sequence[Mark],
    epoch: int,
    also: Also | None,
) -> None:
    """Rows, pointer and marks in one transaction, with what else belongs to it."""
    if _fit_together(connection, rows) and not marks and also is None:
        connection.write_and_show_row(statements, lane, rows[0], numbers, epoch)
        return
    connection.begin()
    for row in rows:
        _insert(connection, statements, lane, row, numbers.time_us, epoch)
    show(connection, statements, [numbers], marks, epoch)
    if also is not None:
        also(connection)
    connection.execute(COMMIT)


def note_change(statements: Statements, note: NoteChange) -> Also:
    """A note that is part of a transaction, and ends it if it is not as expected."""
    name, value = note.name.encode(), note.value.encode()

    def also(connection: Connection) -> None:
        if note.expected is None:
            done = connection.execute(statements.add_note, name, value)
        else:
            expected = note.expected.encode()
            done = connection.execute(statements.set_note, value, name, expected)
        if done != 1:
            raise note_changed(note)

    return also


def show(
    connection: Connection,
    statements: Statements,
    covered: Sequence[Numbers],
    marks: Sequence[Mark],
    epoch: int,
) -> None:
    """Move the pointer over appends whose rows are written, without a hole."""
    last = covered[-1]
    check_one(
        connection.execute(statements.show, last.last, last.time_us, epoch, covered[0].first - 1)
    )
    if marks:
        store_marks(connection, statements, marks)


def _insert(
    connection: Connection,
    statements: Statements,
    lane: int,
    row: PackedRow,
    time_us: int,
    epoch: int,
) -> None:
    values = values_of(row, time_us, epoch)
    check_one(connection.execute_prepared(statements.insert[lane], values))


def _fit_together(connection: Connection, rows: Sequence[PackedRow]) -> bool:
    return len(rows) == 1 and rows[0].size <= connection.together_bytes_max
