"""The writer pointer decides what counts: rows above it are as if they were not there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.log.contract.writing import append, append_by_turns, read_all
from tests.services.mariadb import MariaDB
from tidemill.errors import Bug
from tidemill.log.contract import Ends
from tidemill.log.sql.store import ServerLog


@pytest.fixture
def halfway(
    mariadb: MariaDB, database: str, open_log: Callable[..., ServerLog]
) -> Callable[[], ServerLog]:
    """Makes a log with the rows 1 to 6, as a publisher leaves it that was killed when the first
    two were shown, and those behind them written.
    """

    def make() -> ServerLog:
        store = open_log(parallelism=3)
        append_by_turns(store.claim(), [[b"1"], [b"2"], [b"3", b"4"], [b"5"], [b"6"]])
        mariadb.execute(f"UPDATE {database}.queue_log_pointers SET pointer = 2 WHERE pointer = 6")
        return store

    return make


def test_rows_above_it_cannot_be_read(halfway: Callable[[], ServerLog]) -> None:
    store = halfway()
    assert store.ends() == Ends(1, 3)
    assert read_all(store) == [b"1", b"2"]
    assert store.read(3, rows_max=10, bytes_max=1_000) == []
    assert store.seq_at(2**60) == 3
    assert store.claim_consumer("one", start=6).pointer == 2
    assert store.trim(6) == 3


def test_rows_above_it_are_gone_after_a_takeover(
    halfway: Callable[[], ServerLog], mariadb: MariaDB, database: str
) -> None:
    store = halfway()
    writer = store.claim()
    left = [
        mariadb.execute(f"SELECT first FROM {database}.queue_log_003_{shard:04}")
        for shard in range(3)
    ]
    assert {first for rows in left for (first,) in rows} == {1, 2}
    assert append(writer, [b"three"], lane=2).first == 3
    assert read_all(store) == [b"1", b"2", b"three"]


def test_a_pointer_that_somebody_else_moved_stops_the_publisher(
    mariadb: MariaDB, database: str, open_log: Callable[..., ServerLog]
) -> None:
    store = open_log(parallelism=2)
    writer = store.claim()
    append(writer, [b"a", b"b"])
    mariadb.execute(f"UPDATE {database}.queue_log_pointers SET pointer = 1 WHERE pointer = 2")
    for _ in range(2):
        with pytest.raises(Bug, match="pointer"):
            append(writer, [b"c"])
    assert read_all(store) == [b"a"]
