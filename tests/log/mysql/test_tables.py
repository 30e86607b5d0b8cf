"""The tables of a log: made once, found again, refused if they are not what was asked for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.log.contract.writing import append, read_all
from tests.services.mariadb import MariaDB
from tidemill.errors import (
    Corrupt,
    InvalidInput,
    InvalidName,
    NoAccess,
    NotAQueue,
    SchemaMismatch,
    StorageFailed,
    Unavailable,
    UnknownFormat,
)
from tidemill.log.contract import Ends
from tidemill.log.mysql.connection import MySQLConnection
from tidemill.log.mysql.dialect import MYSQL
from tidemill.log.mysql.statements import REGISTER, REGISTRY, MySQLStatements
from tidemill.log.sql import connection as connecting
from tidemill.log.sql import tables
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import new_badge
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.statements import Statements
from tidemill.log.sql.store import ServerLog

Open = Callable[..., ServerLog]


def test_the_tables_have_the_names_of_the_design(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    open_log(parallelism=2)
    found = mariadb.execute(f"SHOW TABLES FROM {database}")
    assert sorted(str(row[0]) for row in found) == [
        "queue_log_002_0000",
        "queue_log_002_0001",
        "queue_log_epoch",
        "queue_log_notes",
        "queue_log_pointers",
        "queue_log_producers",
        "queue_log_schemas",
        "queue_log_staging",
        "tidemill_logs",
    ]


def test_another_parallelism_is_refused(open_log: Open) -> None:
    open_log(parallelism=2)
    assert len(open_log().statements.shards) == 2
    with pytest.raises(InvalidInput, match="parallelism of 2, not 4"):
        open_log(parallelism=4)
    for wrong in (0, 65):
        with pytest.raises(InvalidInput, match="1 to 64"):
            open_log(parallelism=wrong)


@pytest.mark.parametrize(
    "option",
    [
        {"parallelism": "4"},
        {"parallelism": True},
        {"retry_s": None},
        {"retry_s": -1},
        {"writes_per_second_max": "fast"},
        {"writes_per_second_max": -1},
    ],
    ids=str,
)
def test_options_that_make_no_sense_are_refused_before_anything_is_made(
    mariadb: MariaDB, database: str, open_log: Open, option: dict[str, object]
) -> None:
    with pytest.raises(InvalidInput, match=next(iter(option))):
        open_log(**option)
    assert mariadb.execute(f"SHOW TABLES FROM {database}") == []


def test_a_schema_that_is_refused_makes_no_tables(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    for schema in (pa.schema([("seq", pa.int64())]), pa.schema([]), "value: binary"):
        with pytest.raises(SchemaMismatch):
            open_log(schema=schema)
    assert mariadb.execute(f"SHOW TABLES FROM {database}") == []


def test_a_log_that_is_not_there_is_not_made_unless_asked_for(open_log: Open) -> None:
    with pytest.raises(NotAQueue, match="no log named 'log'"):
        open_log(create=False)
    open_log()
    assert open_log(create=False).ends() == Ends(1, 1)


@pytest.mark.parametrize("name", ["a-b.c", "1_2", "a" * 40, "select", "x_pointers"])
def test_names_are_quoted(mariadb: MariaDB, database: str, name: str) -> None:
    with ServerLog(mariadb.url(database, name), parallelism=2) as store:
        append(store.claim(), [b"a"])
        assert read_all(store) == [b"a"]


@pytest.mark.parametrize("name", ["a" * 41, "a`b", "a b", "x;DROP", "%60x", "a'"])
def test_other_names_are_refused(mariadb: MariaDB, database: str, name: str) -> None:
    with pytest.raises(InvalidName):
        ServerLog(mariadb.url(database, name))
    assert mariadb.execute(f"SHOW TABLES FROM {database}") == []


def test_names_that_differ_by_case_alone_are_refused(mariadb: MariaDB, database: str) -> None:
    ServerLog(mariadb.url(database, "Orders")).close()
    with pytest.raises(InvalidName, match="case alone"):
        ServerLog(mariadb.url(database, "orders"))


def test_a_log_whose_making_was_interrupted_is_finished_by_the_next(
    mariadb: MariaDB, database: str, url: str, open_log: Open
) -> None:
    """Registered with two shards, one table made, then the process was gone."""
    connection = MySQLConnection(Address.parse(url), new_badge())
    connection.execute(REGISTRY)
    connection.execute(REGISTER, b"log", b"log", 2)
    connection.execute(MySQLStatements("log", 2).create[0])
    connection.close()
    with pytest.raises(InvalidInput, match="parallelism of 2"):
        open_log(parallelism=4)
    store = open_log()
    append(store.claim(), [b"a"], lane=1)
    assert read_all(store) == [b"a"]


def test_many_make_the_same_log_at_once(mariadb: MariaDB, database: str, url: str) -> None:
    ends: list[Ends] = []

    def make() -> None:
        with ServerLog(url, parallelism=3) as store:
            ends.append(store.ends())

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [Ends(1, 1)] * 6


def test_tables_are_migrated_once_and_newer_ones_refused(
    mariadb: MariaDB, database: str, url: str, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(open_log(parallelism=1).claim(), [b"a"])
    calls: list[str] = []

    def add_a_column(connection: Connection, statements: Statements) -> None:
        calls.append(statements.shards[0])
        connection.execute(f"ALTER TABLE {statements.shards[0]} ADD COLUMN IF NOT EXISTS more INT")

    connection = MySQLConnection(Address.parse(url), new_badge())
    newer = [*tables.MIGRATIONS, add_a_column]
    for _ in range(2):
        tables.open_tables(connection, MYSQL, "log", None, create=False, migrations=newer)
    connection.close()
    assert calls == ["`queue_log_001_0000`"]
    assert mariadb.execute(f"SELECT layout FROM {database}.tidemill_logs") == [(3,)]
    with pytest.raises(UnknownFormat, match="layout 3"):
        open_log()


def test_a_missing_table_is_an_error_that_names_it(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    open_log(parallelism=2)
    mariadb.execute(f"DROP TABLE {database}.queue_log_002_0001")
    with pytest.raises(Corrupt, match="queue_log_002_0001 is missing"):
        open_log()


def test_a_table_without_transactions_is_refused(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    open_log(parallelism=1)
    mariadb.execute(f"ALTER TABLE {database}.queue_log_001_0000 ENGINE=MyISAM")
    with pytest.raises(StorageFailed, match="MyISAM"):
        open_log()


@pytest.mark.parametrize("table", ["epoch", "pointers"])
def test_missing_rows_of_the_books_are_errors_that_name_them(
    mariadb: MariaDB, database: str, open_log: Open, table: str
) -> None:
    store = open_log(parallelism=1)
    mariadb.execute(f"DELETE FROM {database}.queue_log_{table}")
    with pytest.raises(Corrupt, match="row of the"):
        store.claim()
    if table == "pointers":
        with pytest.raises(Corrupt, match="writer pointer"):
            store.ends()


def test_a_database_that_is_not_there_is_named(mariadb: MariaDB) -> None:
    with pytest.raises(NotAQueue, match="nowhere"):
        ServerLog(mariadb.url("nowhere", "log"))


def test_a_user_without_rights_is_refused_and_the_password_is_not_told(
    mariadb: MariaDB, database: str
) -> None:
    url = mariadb.url(database, "log").replace("root@", "nobody:secret@")
    with pytest.raises(NoAccess) as refused:
        ServerLog(url)
    assert "secret" not in str(refused.value)


def test_a_server_that_is_away_is_waited_for_in_vain_but_not_for_ever(mariadb: MariaDB) -> None:
    with pytest.raises(Unavailable, match=r"gave up after 0\.2 s"):
        ServerLog("mysql://root@127.0.0.1:1/test/log", retry_s=0.2)


def test_rows_of_its_own_that_are_missing_are_told_of(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    store = open_log()
    writer = store.claim()
    append(writer, [b"a", b"b"])
    claim = store.claim_consumer("billing", start=1)
    mariadb.execute(f"DELETE FROM {database}.queue_log_pointers WHERE name LIKE '/%%'")
    works: list[Callable[[], object]] = [
        store.ends,
        lambda: store.read(1, rows_max=1, bytes_max=1),
        lambda: store.seq_at(1),
        lambda: store.trim(2),
        lambda: store.claim_consumer("audit", start=1),
        lambda: store.move_pointer(claim, 1),
        lambda: append(writer, [b"c"]),
        store.claim,
    ]
    for work in works:
        with pytest.raises(Corrupt, match="missing"):
            work()
    mariadb.execute(f"DELETE FROM {database}.queue_log_epoch")
    with pytest.raises(Corrupt, match="missing"):
        store.claim()


def test_a_table_that_others_lock_is_waited_for_no_longer_than_asked(
    mariadb: MariaDB, database: str, open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOCK_WAIT_S", 1)
    store = open_log(retry_s=0.5)
    with mariadb.connect(database) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLES queue_log_pointers READ")
        began_s = time.monotonic()
        with pytest.raises(Unavailable, match="1205"):
            store.claim_consumer("billing", start=1)
        assert time.monotonic() - began_s < 10
    assert store.claim_consumer("billing", start=1).pointer == 0


def test_a_writer_that_a_server_refused_says_how_to_go_on(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    store = open_log()
    writer = store.claim()
    append(writer, [b"a"])
    mariadb.execute(f"RENAME TABLE {database}.queue_log_epoch TO {database}.queue_log_gone")
    with pytest.raises(Corrupt, match="queue_log_epoch"):
        append(writer, [b"b"])
    mariadb.execute(f"RENAME TABLE {database}.queue_log_gone TO {database}.queue_log_epoch")
    with pytest.raises(Corrupt, match="then open a new publisher"):
        append(writer, [b"b"])
    append(store.claim(), [b"c"])
    assert read_all(store) == [b"a", b"c"]
