"""What the server's settings promise is in the receipts, and bad ones are told of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymysql
import pytest

from tests.log.contract.writing import append, frames_of, read_all
from tests.services.mariadb import MariaDB
from tests.services.server import skip_or_fail
from tidemill.errors import NoAccess, Unavailable
from tidemill.log.mysql.durability import settings_of
from tidemill.log.sql import appending, patience
from tidemill.log.sql import writer as writing
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.store import ServerLog


@pytest.fixture
def relaxed(mariadb: MariaDB) -> Iterator[None]:
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    yield
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")


def _durability(store: ServerLog) -> str:
    writer = store.claim()
    return writer.append(0, writer.reserve(1), frames_of([b"a"]))


def test_rows_are_synced_at_full_durability(open_log: Callable[..., ServerLog]) -> None:
    store = open_log()
    assert _durability(store) == "synced"
    assert store.settings().problems == ()
    assert "MariaDB" in store.settings().version


def test_rows_are_buffered_if_the_server_does_not_sync(
    open_log: Callable[..., ServerLog], relaxed: None
) -> None:
    store = open_log()
    assert _durability(store) == "buffered"
    (problem,) = store.settings().problems
    assert "innodb_flush_log_at_trx_commit = 2" in problem
    assert "set it to 1" in problem


def test_a_setting_that_changes_while_one_writes_is_noticed(
    mariadb: MariaDB,
    open_log: Callable[..., ServerLog],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writing, "_SETTINGS_S", 0.0)
    writer = open_log().claim()
    found = []
    try:
        for _ in range(2):
            found.append(writer.append(0, writer.reserve(1), frames_of([b"a"])))
            mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        found.append(writer.append(0, writer.reserve(1), frames_of([b"a"])))
    finally:
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert found[0] == "synced"
    assert found[-1] == "buffered"


def test_connections_lock_no_gaps_whatever_the_default_of_the_server(
    mariadb: MariaDB, open_log: Callable[..., ServerLog]
) -> None:
    """Under SERIALIZABLE a reader would wait for whoever writes."""
    mariadb.execute("SET GLOBAL tx_isolation = 'SERIALIZABLE'")
    try:
        store = open_log(parallelism=1)
        level = "SHOW VARIABLES WHERE variable_name IN ('tx_isolation', 'transaction_isolation')"
        found = store.run(lambda connection: connection.query(level))
        assert {value for _, value in found} == {"READ-COMMITTED"}
    finally:
        mariadb.execute("SET GLOBAL tx_isolation = 'REPEATABLE-READ'")


@pytest.mark.slow
def test_a_binary_log_that_is_not_synced_is_told_of(tmp_path: Path) -> None:
    """As MariaDB has it by default."""
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    with MariaDB(tmp_path, "--log-bin") as server:
        server.execute("CREATE DATABASE shop")
        with ServerLog(server.url("shop", "log"), parallelism=2) as store:
            assert _durability(store) == "buffered"
            assert "sync_binlog = 0" in store.settings().problems[0]
            server.execute("SET GLOBAL sync_binlog = 1")
            assert _durability(store) == "synced"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("innodb_flush_log_at_trx_commit", "0"),
        ("innodb_flush_log_at_trx_commit", "2"),
        ("innodb_doublewrite", "OFF"),
        ("innodb_flush_method", "nosync"),
        ("sync_binlog", "0"),
        ("sync_binlog", "100"),
    ],
)
def test_each_setting_that_voids_the_promise_is_named(name: str, value: str) -> None:
    values = {"log_bin": "ON", "sync_binlog": "1", "version": "10.11", name: value}
    settings = settings_of(values)
    assert settings.durability == "buffered"
    assert [problem for problem in settings.problems if f"{name} = {value}" in problem]


def test_settings_that_keep_the_promise_are_not_complained_about() -> None:
    for values in ({}, {"innodb_flush_log_at_trx_commit": "3"}, {"sync_binlog": "0"}):
        assert settings_of({"log_bin": "OFF", **values}).durability == "synced"


@pytest.mark.parametrize(
    "setting",
    [
        "sql_select_limit = 1",
        "max_join_size = 1",
        "sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
        "autocommit = 0",
        "tx_isolation = 'SERIALIZABLE'",
        "tx_isolation = 'READ-UNCOMMITTED'",
        "completion_type = 'CHAIN'",
        "default_storage_engine = 'MyISAM'",
    ],
)
def test_what_others_need_of_a_server_does_not_matter(
    mariadb: MariaDB, url: str, setting: str
) -> None:
    name = setting.split(maxsplit=1)[0]
    ((before,),) = mariadb.execute(f"SELECT @@GLOBAL.{name}")
    mariadb.execute(f"SET GLOBAL {setting}")
    try:
        store = ServerLog(url)
    finally:
        mariadb.execute(f"SET GLOBAL {name} = %s", before)
    with store:
        writer = store.claim()
        for lane in range(writer.lanes):
            writer.append(lane, writer.reserve(2), frames_of([b"\\'\x00", b'"%s']))
        batches = store.read(1, rows_max=100, bytes_max=1 << 20)
        assert sum(len(batch) for batch in batches) == 2 * writer.lanes
        assert store.trim(2) == 2


def _url_of(mariadb: MariaDB, database: str, user: str, limit: str) -> str:
    mariadb.execute(f"CREATE USER {user} WITH {limit}")
    mariadb.execute(f"GRANT ALL ON {database}.* TO {user}")
    return f"mysql://{user}@127.0.0.1:{mariadb.port}/{database}/log"


def test_a_statement_that_takes_longer_than_its_user_may_is_tried_again(
    mariadb: MariaDB, database: str, url: str, other: pymysql.cursors.Cursor
) -> None:
    with ServerLog(url, parallelism=1):
        pass  # Making tables may take a busy server longer than that.
    hurried = _url_of(mariadb, database, "hurried", "MAX_STATEMENT_TIME 1")
    with ServerLog(hurried) as store, ThreadPoolExecutor(1) as threads:
        writer = store.claim()
        other.execute("SELECT epoch FROM queue_log_epoch FOR UPDATE")
        sending = threads.submit(append, writer, [b"a"])
        with pytest.raises(TimeoutError):
            sending.result(timeout=2)
        other.execute("ROLLBACK")
        assert sending.result(timeout=30).first == 1
        assert read_all(store) == [b"a"]


def test_a_user_who_has_no_connection_left_waits_for_one(mariadb: MariaDB, database: str) -> None:
    url = _url_of(mariadb, database, "modest", "MAX_USER_CONNECTIONS 4")
    others = [pymysql.connect(host="127.0.0.1", port=mariadb.port, user="modest") for _ in range(4)]

    def end() -> None:
        for one in others:
            one.close()

    ending = threading.Timer(0.3, end)
    ending.start()
    with ServerLog(url, parallelism=1, retry_s=30) as store:
        assert append(store.claim(), [b"a"]).first == 1
    ending.join()


def test_whoever_waits_for_a_server_is_told_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "TELL_S", 0.0)
    with pytest.raises(Unavailable, match="gave up after 2 s"):
        ServerLog("mysql://app:hush@127.0.0.1:1/shop/orders", retry_s=2)
    # Of others in this process nothing is known here.
    (record,) = [record for record in caplog.records if record.name == patience.logger.name]
    assert "mysql://app@127.0.0.1:1/shop/orders" in record.getMessage()
    assert "trying again" in record.getMessage()
    assert "hush" not in caplog.text


def test_rows_that_were_committed_are_told_of_whatever_becomes_of_the_look_at_the_settings(
    mariadb: MariaDB,
    database: str,
    open_log: Callable[..., ServerLog],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user is dropped between the commit and the look."""
    monkeypatch.setattr(writing, "_SETTINGS_S", 0.0)
    write_and_show = appending.write_and_show
    mariadb.execute("CREATE USER passing@'127.0.0.1'")
    mariadb.execute(f"GRANT ALL ON {database}.* TO passing@'127.0.0.1'")

    def written(connection: Connection, *arguments: Any) -> None:
        write_and_show(connection, *arguments)
        mariadb.execute("DROP USER passing@'127.0.0.1'")
        mariadb.execute("KILL USER passing@'127.0.0.1'")
        while not connection.is_stale:
            pass

    monkeypatch.setattr(writing, "write_and_show", written)
    with ServerLog(f"mysql://passing@127.0.0.1:{mariadb.port}/{database}/log") as store:
        writer = store.claim()
        assert writer.append(0, writer.reserve(1), frames_of([b"a"])) == "synced"
        with pytest.raises(NoAccess):
            writer.append(0, writer.reserve(1), frames_of([b"b"]))
    assert read_all(open_log()) == [b"a"]
