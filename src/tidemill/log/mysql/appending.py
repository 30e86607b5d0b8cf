"""What an append tells the server: rows, the pointer over them, the producers' marks.

Everything is written under an epoch, and finds out in the same statement whether that is still the
newest: `Overtaken`.

An append of one row, as nearly all are, is one round trip: the row, the pointer and the commit are
sent together. The server runs each of them whatever became of those before, so the pointer moves
only if the row is there:

    row       pointer            commit
    written   moved              the append is there
    refused   finds no row       nothing is there
    written   refused            a row above the pointer: `HalfWritten`, to be removed by a takeover
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.log.contract import Mark
from tidemill.log.mysql.connection import Busy, Connection
from tidemill.log.mysql.marks import store_marks
from tidemill.log.mysql.prepared import TOGETHER_BYTES_MAX, Argument
from tidemill.log.mysql.rows import PackedRow
from tidemill.log.mysql.statements import COMMIT, Statements
from tidemill.log.mysql.under_way import Numbers

_SPARE_BYTES = 4096  # of a command, beside the frames

Also = Callable[[Connection], None]


class Overtaken(Exception):
    """A statement found another epoch than the one it was written under, and changed nothing."""


class HalfWritten(Exception):
    """A row is there, and the pointer could not be moved over it."""


def write_rows(
    connection: Connection,
    statements: Statements,
    lane: int,
    rows: Sequence[PackedRow],
    numbers: Numbers,
    epoch: int,
) -> None:
    """The rows alone, committed."""
    if _fit_together(rows):
        inserted, committed = connection.commit_together(
            [(statements.insert[lane], _values(rows[0], numbers.time_us, epoch))]
        )
        _check(inserted)
        if isinstance(committed, Exception):
            raise committed
        return
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
    if _fit_together(rows) and not marks and also is None:
        _write_and_show_together(connection, statements, lane, rows[0], numbers, epoch)
        return
    for row in rows:
        _insert(connection, statements, lane, row, numbers.time_us, epoch)
    show(connection, statements, [numbers], marks, epoch)
    if also is not None:
        also(connection)
    connection.execute(COMMIT)


def show(
    connection: Connection,
    statements: Statements,
    covered: Sequence[Numbers],
    marks: Sequence[Mark],
    epoch: int,
) -> None:
    """Move the pointer over appends whose rows are written, without a hole."""
    last = covered[-1]
    _check(
        connection.execute(statements.show, last.last, last.time_us, epoch, covered[0].first - 1)
    )
    if marks:
        store_marks(connection, statements, marks)


def _write_and_show_together(
    connection: Connection,
    statements: Statements,
    lane: int,
    row: PackedRow,
    numbers: Numbers,
    epoch: int,
) -> None:
    moved = (numbers.last, numbers.time_us, epoch, numbers.first - 1, row.first, row.last, epoch)
    inserted, shown, committed = connection.commit_together(
        [
            (statements.insert[lane], _values(row, numbers.time_us, epoch)),
            (statements.show_written[lane], moved),
        ]
    )
    _check(inserted)
    if isinstance(shown, Busy):
        raise HalfWritten("the row of the writer pointer was locked") from shown
    _check(shown)
    if isinstance(committed, Exception):
        raise committed


def _insert(
    connection: Connection,
    statements: Statements,
    lane: int,
    row: PackedRow,
    time_us: int,
    epoch: int,
) -> None:
    values = _values(row, time_us, epoch)
    _check(connection.execute_prepared(statements.insert[lane], values))


def _values(row: PackedRow, time_us: int, epoch: int) -> Sequence[Argument]:
    return (row.first, row.last, epoch, time_us, row.size, row.parts, epoch)


def _check(answer: int | Exception) -> None:
    """Each statement changes one row, unless the epoch is not ours any more."""
    if isinstance(answer, Exception):
        raise answer
    if answer != 1:
        raise Overtaken


def _fit_together(rows: Sequence[PackedRow]) -> bool:
    return len(rows) == 1 and rows[0].size <= TOGETHER_BYTES_MAX - _SPARE_BYTES
