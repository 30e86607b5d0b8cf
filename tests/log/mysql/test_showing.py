"""The statements that move the writer pointer: under the newest epoch, from where it stands, and
over rows that are there.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.contract.writing import append, frames_of, read_all
from tidemill.log.contract import Ends
from tidemill.log.mysql.statements import MySQLStatements
from tidemill.log.sql.appending import show
from tidemill.log.sql.connection import Connection, Overtaken
from tidemill.log.sql.rows import pack_rows
from tidemill.log.sql.store import ServerLog
from tidemill.log.sql.under_way import Numbers


@pytest.fixture
def store(open_log: Callable[..., ServerLog]) -> ServerLog:
    """A log with one row that counts, and one behind it that does not, under epoch 2."""
    store = open_log(parallelism=1)
    append(store.claim(), [b"a"])
    assert store.claim().epoch == 2
    (row,) = pack_rows(frames_of([b"b"]), 2, 1, bytes_max=2**20)
    values = (row.first, row.last, 2, 1, row.size, row.parts, 2)
    insert = store.statements.insert[0]
    assert store.run(lambda connection: connection.execute_prepared(insert, values)) == 1
    return store


@pytest.mark.parametrize(("epoch", "first"), [(1, 2), (3, 2), (2, 1), (2, 3)])
def test_a_pointer_is_moved_by_nobody_else_and_from_nowhere_else(
    store: ServerLog, epoch: int, first: int
) -> None:
    def move(connection: Connection) -> None:
        show(connection, store.statements, [Numbers(first, 1, 1)], [], epoch)

    with pytest.raises(Overtaken):
        store.run(move)
    assert store.ends() == Ends(1, 2)


@pytest.mark.parametrize(
    ("epoch", "pointer", "row"),
    [(1, 1, (2, 2, 2)), (2, 0, (2, 2, 2)), (2, 1, (3, 3, 2)), (2, 1, (2, 3, 2)), (2, 1, (2, 2, 1))],
)
def test_a_pointer_is_not_moved_over_a_row_that_is_not_there(
    store: ServerLog, epoch: int, pointer: int, row: tuple[int, int, int]
) -> None:
    move = _show_written(store)
    values = (2, 1, epoch, pointer, *row)
    assert store.run(lambda connection: connection.execute_prepared(move, values)) == 0
    assert store.ends() == Ends(1, 2)


def test_a_pointer_is_moved_over_what_is_there(store: ServerLog) -> None:
    move, values = _show_written(store), (2, 1, 2, 1, 2, 2, 2)
    assert store.run(lambda connection: connection.execute_prepared(move, values)) == 1
    assert read_all(store) == [b"a", b"b"]


def _show_written(store: ServerLog) -> str:
    assert isinstance(store.statements, MySQLStatements)
    return store.statements.show_written[0]
