"""Reading from shards: in pieces, and beside somebody who trims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.log.contract.writing import append, append_by_turns, read_all
from tests.services.mariadb import MariaDB
from tidemill.errors import Corrupt, Trimmed
from tidemill.log.sql import reading
from tidemill.log.sql.store import ServerLog


def test_more_places_than_are_looked_at_in_one_shard(
    open_log: Callable[..., ServerLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind the last place that a shard has given there may be more of it, so that a hole there
    is none.
    """
    monkeypatch.setattr(reading, "PLACES_MAX", 3)
    store = open_log(parallelism=2)
    writer = store.claim()
    rows = [b"%d" % number for number in range(20)]
    for number, row in enumerate(rows):
        append(writer, [row], lane=int(number % 10 == 9))
    assert read_all(store) == rows
    for start in (2, 9, 10, 11):
        assert read_all(store, start) == rows[start - 1 :]


def test_rows_that_are_trimmed_while_they_are_read_are_not_missing(
    open_log: Callable[..., ServerLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their places were found, and they were gone when they were to be fetched."""
    store, other = open_log(parallelism=2), open_log()
    append_by_turns(store.claim(), [[b"%d" % number] for number in range(1, 9)])
    look = reading.within

    def and_trim(*arguments: Any) -> list[reading.Place]:
        monkeypatch.undo()
        other.trim(6)
        return look(*arguments)

    monkeypatch.setattr(reading, "within", and_trim)
    with pytest.raises(Trimmed) as caught:
        store.read(1, rows_max=10, bytes_max=2**20)
    assert caught.value.first == 6
    assert read_all(store) == [b"6", b"7", b"8"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("frame = @later WHERE first = 3", "starts with number 5, not 3"),
        ("frame = CONCAT(frame, @later) WHERE first = 1", "starts with number 5, not 3"),
        ("last = 5, frame = CONCAT(frame, @later) WHERE first = 3", "with number 6, not 5"),
        ("frame = '' WHERE first = 3", "end with number 2, not 4"),
        ("frame = LEFT(frame, 100) WHERE first = 3", "rows 3 to 4"),
    ],
)
def test_a_row_that_does_not_hold_its_numbers_is_damaged(
    open_log: Callable[..., ServerLog], mariadb: MariaDB, database: str, change: str, reason: str
) -> None:
    """Every frame is whole: they lie in the wrong place, or some are missing."""
    store = open_log(parallelism=1)
    append_by_turns(store.claim(), [[b"1", b"2"], [b"3", b"4"], [b"5", b"6"]])
    table = f"{database}.queue_log_001_0000"
    with mariadb.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT frame INTO @later FROM {table} WHERE first = 5")
        cursor.execute(f"UPDATE {table} SET {change}")
    with pytest.raises(Corrupt, match=reason):
        read_all(store)
