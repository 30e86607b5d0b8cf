"""The tables of a log: made once, by whoever comes first, in a form that keeps what is written."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import tidemill as tm
from tests.log.contract.writing import append, read_all
from tests.services.postgres import Postgres
from tidemill.log.sql.store import ServerLog

pytestmark = pytest.mark.slow


def test_many_that_make_logs_in_a_new_database_at_once_get_one_of_each_name(
    postgres: Postgres,
) -> None:
    postgres.execute("CREATE DATABASE crowded")
    url = postgres.url("log").replace("/postgres/", "/crowded/")

    def make(number: int) -> int:
        with ServerLog(f"{url}{number % 3}", parallelism=2) as log:
            return log.claim().epoch

    with ThreadPoolExecutor(6) as threads:
        epochs = list(threads.map(make, range(6)))
    assert sorted(epochs) == [1, 1, 1, 2, 2, 2]


def test_a_table_that_is_not_logged_is_refused(postgres: Postgres) -> None:
    url = postgres.url()
    table = f"queue_{url.rpartition('/')[2]}_001_0000"
    ServerLog(url, parallelism=1).close()
    postgres.execute(f"ALTER TABLE {table} SET UNLOGGED")
    with pytest.raises(tm.StorageFailed, match=f"table {table} is not logged"):
        ServerLog(url)
    postgres.execute(f"DROP TABLE {table}")
    with pytest.raises(tm.Corrupt, match=f"table {table} is missing"):
        ServerLog(url)


def test_names_differ_by_more_than_case(url: str) -> None:
    ServerLog(url).close()
    with pytest.raises(tm.InvalidName, match="case"):
        ServerLog(url.replace("/log_", "/LOG_"))


def test_another_parallelism_is_refused(url: str) -> None:
    ServerLog(url, parallelism=2).close()
    with pytest.raises(tm.InvalidInput, match="parallelism of 2, not 3"):
        ServerLog(url, parallelism=3)


def test_tables_are_in_the_schema_where_a_role_makes_them(postgres: Postgres) -> None:
    """A role may have a schema of its own, and with it logs of its own."""
    postgres.execute("CREATE ROLE tenant LOGIN")
    postgres.execute("CREATE SCHEMA tenant AUTHORIZATION tenant")
    url = postgres.url()
    with ServerLog(url) as ours, ServerLog(url.replace("root@", "tenant@")) as theirs:
        append(ours.claim(), [b"ours"])
        append(theirs.claim(), [b"theirs"])
        assert (read_all(ours), read_all(theirs)) == ([b"ours"], [b"theirs"])


def test_a_log_can_be_reached_by_a_socket(postgres: Postgres, url: str) -> None:
    with ServerLog(f"{url}?unix_socket={postgres.folder}") as log:
        append(log.claim(), [b"a"])
        assert read_all(log) == [b"a"]
