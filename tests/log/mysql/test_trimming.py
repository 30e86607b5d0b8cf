"""A trim beside somebody who makes a consumer: neither happens in the middle of the other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pymysql
import pytest

from tests.log.contract.writing import append
from tests.services.mariadb import MariaDB
from tidemill.log.sql import trimming
from tidemill.log.sql.store import ServerLog

FIRST = "SELECT pointer FROM queue_log_pointers WHERE name = '/first'"


@pytest.fixture
def full(open_log: Callable[..., ServerLog]) -> ServerLog:
    store = open_log(parallelism=1)
    writer = store.claim()
    for _ in range(20):
        append(writer, [b"row"])
    return store


def test_a_consumer_made_while_rows_are_trimmed_starts_behind_them(
    full: ServerLog, mariadb: MariaDB, other: pymysql.cursors.Cursor
) -> None:
    other.execute(f"{FIRST} FOR UPDATE")  # as a trim begins
    with ThreadPoolExecutor(1) as threads:
        claiming = threads.submit(full.claim_consumer, "one", start=1)
        mariadb.until_it_waits_for_a_lock(claiming)
        other.execute("UPDATE queue_log_pointers SET pointer = 11 WHERE name = '/first'")
        other.execute("COMMIT")
        assert claiming.result(timeout=30).pointer == 10


def test_rows_are_not_trimmed_under_a_consumer_that_is_being_made(
    full: ServerLog, mariadb: MariaDB, other: pymysql.cursors.Cursor
) -> None:
    other.execute(f"{FIRST} LOCK IN SHARE MODE")  # as a claim begins
    with ThreadPoolExecutor(1) as threads:
        trimmed = threads.submit(full.trim, 15)
        mariadb.until_it_waits_for_a_lock(trimmed)
        other.execute("INSERT INTO queue_log_pointers VALUES ('one', 'one', 4, 1, 0)")
        other.execute("COMMIT")
        assert trimmed.result(timeout=30) == 5


def test_everything_below_is_removed_piece_by_piece(
    full: ServerLog, mariadb: MariaDB, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimming, "ROWS_PER_DELETE", 3)
    append(full.claim(), [b"a", b"b", b"c"])
    assert full.trim(22) == 22
    left = mariadb.execute(f"SELECT first, last FROM {database}.queue_log_001_0000")
    assert left == [(21, 23)], "the row that reaches across stays"
