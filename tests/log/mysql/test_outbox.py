"""The outbox: what an application commits is published once, in order, whatever happens."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql
import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tests.log.sql.packet_faults import TIMEOUT_S, PacketFaults
from tests.log.sql.relays import relay_after_a_kill
from tests.log.sql.test_kills import SOAK, Nursery
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import Fault, TcpProxy
from tidemill.batch import DEFAULT
from tidemill.errors import Fenced, Locked, SchemaMismatch
from tidemill.log.mysql import rounds as relaying
from tidemill.log.sql.connection import IDLE_S


@pytest.fixture
def outbox(url: str) -> tm.Outbox:
    outbox = tm.Outbox(url)
    outbox.create()
    outbox.create()
    return outbox


@pytest.fixture(params=["same server", "elsewhere"])
def log_address(request: pytest.FixtureRequest, url: str, tmp_path: Path) -> str:
    return url if request.param == "same server" else str(tmp_path / "log")


@pytest.fixture
def application(
    mariadb: MariaDB, database: str
) -> Iterator[Callable[[], pymysql.Connection[pymysql.cursors.Cursor]]]:
    """Opens connections of the application's, which are in a transaction."""
    connections = []

    def connect() -> pymysql.Connection[pymysql.cursors.Cursor]:
        connections.append(mariadb.connect(database))
        connections[-1].begin()
        return connections[-1]

    yield connect
    for connection in connections:
        connection.close()


def _insert(
    outbox: tm.Outbox, connection: pymysql.Connection[pymysql.cursors.Cursor], *values: bytes
) -> None:
    with connection.cursor() as cursor:
        outbox.insert(cursor, values)


def _rows(address: str) -> list[Any]:
    with tm.Log(address) as log:
        return log.read(1, rows_max=10_000_000).rows()


def test_what_is_committed_is_published_and_what_is_rolled_back_is_not(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    shop = application()
    _insert(outbox, shop, b"a", b"b")
    shop.commit()
    shop.begin()
    _insert(outbox, shop, b"never")
    shop.rollback()
    shop.begin()
    _insert(outbox, shop, bytes(300_000))
    shop.commit()
    assert len(outbox) == 3
    with outbox.relay(log_address) as relay:
        assert relay.run(follow=False) == 3
    assert len(outbox) == 0
    assert _rows(log_address) == [b"a", b"b", bytes(300_000)]


def test_a_row_that_is_committed_late_is_not_skipped(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    slow, quick = application(), application()
    _insert(outbox, slow, b"lower id, committed later")
    _insert(outbox, quick, b"higher id")
    quick.commit()
    with outbox.relay(log_address) as relay:
        assert relay.round() == 1
        slow.commit()
        assert relay.round() == 1
        assert relay.round() == 0
    assert _rows(log_address) == [b"higher id", b"lower id, committed later"]


def test_a_round_is_bounded_in_rows_and_bytes(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relaying, "ROWS_PER_ROUND", 3)
    monkeypatch.setattr(relaying, "BYTES_PER_ROUND", 100)
    shop = application()
    values = [b"a", b"b", b"c", b"d", bytes(200), b"e"]
    _insert(outbox, shop, *values)
    shop.commit()
    with outbox.relay(log_address) as relay:
        assert [relay.round() for _ in range(5)] == [3, 1, 1, 1, 0]
        assert relay.published == 6
    assert _rows(log_address) == values


def test_one_relay_runs_at_a_time(outbox: tm.Outbox, log_address: str, tmp_path: Path) -> None:
    with outbox.relay(log_address) as first:
        with pytest.raises(Locked, match="another relay"):
            outbox.relay(log_address)
        assert first.round() == 0
    outbox.relay(log_address).close()


def test_a_relay_that_was_overtaken_publishes_nothing(
    outbox: tm.Outbox,
    url: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    shop = application()
    _insert(outbox, shop, b"a")
    shop.commit()
    with outbox.relay(url) as relay, tm.Log(url) as log:
        out = log.publisher()
        with pytest.raises(Fenced):
            relay.round()
        assert len(outbox) == 1
        out.send(b"other")
        assert log.read(1).rows() == [b"other"]


def test_rows_that_somebody_deletes_meanwhile_are_not_published(
    outbox: tm.Outbox,
    mariadb: MariaDB,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = application()
    _insert(outbox, shop, b"a", b"b")
    shop.commit()
    looked = relaying.lowest

    def and_deleted(connection: object, statements: object) -> object:
        found = looked(connection, statements)  # type: ignore[arg-type]
        mariadb.execute(f"DELETE FROM {outbox.table} WHERE value = 'a'")
        return found

    monkeypatch.setattr(relaying, "lowest", and_deleted)
    with outbox.relay(log_address) as relay:
        assert relay.run(follow=False) == 1
    assert _rows(log_address) == [b"b"]


def test_a_log_of_other_columns_is_refused(outbox: tm.Outbox, tmp_path: Path) -> None:
    address = str(tmp_path / "typed")
    tm.Log(address, schema=pa.schema([("n", pa.int64())])).close()
    with pytest.raises(SchemaMismatch, match="cannot hold those of the outbox"):
        outbox.relay(address)


def test_a_log_that_has_more_columns_gets_nulls_there(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    shop = application()
    _insert(outbox, shop, b"a")
    shop.commit()
    tm.Log(log_address).close()
    tm.Log(log_address, schema=pa.schema([*DEFAULT, pa.field("note", pa.utf8())])).close()
    with outbox.relay(log_address) as relay:
        assert relay.run(follow=False) == 1
    assert _rows(log_address) == [{"value": b"a", "note": None}]


def test_sourced_rows_are_published_as_such(
    url: str,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    outbox = tm.Outbox(url)
    outbox.create(sourced=True)
    outbox.create(sourced=True)
    shop = application()
    rows = [
        tm.Sourced(-(2**31), 2**63 - 1, "Köln \U0001f30a", b"\x00\xff"),
        tm.Sourced(7, -1, "", b""),
    ]
    with shop.cursor() as cursor:
        outbox.insert(cursor, rows)
        cursor.execute(
            f"INSERT INTO {outbox.table} (source_type, source_id, source_name, value) "
            "VALUES (1, 42, 'web', 'by hand')"
        )
    shop.commit()
    with outbox.relay(log_address) as relay:
        assert relay.run(follow=False) == 3
    assert len(outbox) == 0
    with tm.Log(log_address) as log:
        assert log.schema.equals(tm.SOURCED)
        assert [tuple(row.values()) for row in log.read(1).rows()] == [
            *map(tuple, rows),
            (1, 42, "web", b"by hand"),
        ]


def test_sourced_and_other_rows_do_not_mix(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    sourced = tm.Sourced(1, 2, "web", b"a")
    with application().cursor() as cursor, pytest.raises(SchemaMismatch, match="not every row"):
        outbox.insert(cursor, [sourced, b"b"])
    with pytest.raises(SchemaMismatch, match="without sourced"):
        outbox.create(sourced=True)
    tm.Log(log_address, schema=tm.SOURCED).close()
    with pytest.raises(SchemaMismatch, match="source_type"):
        outbox.relay(log_address)
    assert len(outbox) == 0


def test_an_outbox_or_a_log_that_cannot_be_relayed_is_refused(
    mariadb: MariaDB, database: str, outbox: tm.Outbox, tmp_path: Path
) -> None:
    with pytest.raises(tm.NotAQueue, match="outbox create"):
        tm.Outbox(mariadb.url(database, "nowhere")).relay(str(tmp_path / "log"))
    with pytest.raises(tm.InvalidInput, match="memory"):
        outbox.relay("memory:gone")
    with pytest.raises(tm.NotAQueue):
        outbox.relay(str(tmp_path / "log"), create=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("names_differ", [True, False])
def test_rounds_of_two_outboxes_are_not_taken_for_each_other(
    mariadb: MariaDB,
    database: str,
    outbox: tm.Outbox,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    names_differ: bool,
) -> None:
    """Both publish to one log, by turns; the first one's relay was killed before it sent a round
    whose number the second one then used. Their databases tell them apart; if those have the same
    name too, on two servers, the relay stops rather than lose rows.
    """
    log, theirs = str(tmp_path / "log"), f"{database}_2"
    mariadb.execute(f"CREATE DATABASE {theirs}")
    try:
        second = tm.Outbox(mariadb.url(theirs, "log"))
        second.create()
        for each, value in ((outbox, b"first"), (second, b"second")):
            mariadb.execute(f"INSERT INTO {each.table} (value) VALUES (%s)", value)
        mariadb.execute(f"UPDATE {outbox.table} SET round = 1")
        if not names_differ:
            monkeypatch.setattr(relaying, "_producer", lambda address: "outbox")
        with second.relay(log) as relay:
            assert relay.run(follow=False) == 1
        with outbox.relay(log) as relay:
            if names_differ:
                assert relay.run(follow=False) == 1
                assert _rows(log) == [b"second", b"first"]
            else:
                with pytest.raises(tm.ProducerMismatch):
                    relay.run(follow=False)
                assert len(outbox) == 1
    finally:
        mariadb.execute(f"DROP DATABASE {theirs}")


def test_a_round_is_published_once_wherever_the_connection_fails(
    faults: PacketFaults,
    url: str,
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    shop = application()
    expected: list[bytes] = []
    address = faults.url if log_address == url else log_address
    relay = tm.Outbox(faults.url).relay(address)

    def before() -> None:
        values = [b"%d" % (len(expected) + more) for more in range(3)]
        _insert(outbox, shop, *values)
        shop.commit()
        shop.begin()
        expected.extend(values)
        if len(expected) == 3:
            relay.round()  # Once, so that every connection is there.
            before()

    def step() -> None:
        assert relay.round() == 3

    faults.at_every_packet("a relay's round", step, before=before)
    relay.close()
    assert _rows(log_address) == expected


@pytest.mark.slow
def test_a_relay_whose_connection_fell_silent_gets_its_lock_back(
    mariadb: MariaDB,
    database: str,
    proxy: TcpProxy,
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    """The server would give it to nobody until it notices."""
    shop = application()
    _insert(outbox, shop, b"a")
    shop.commit()
    through = mariadb.url(database, "log", port=proxy.port) + f"?timeout_s={TIMEOUT_S}"
    with tm.Outbox(through).relay(log_address) as relay:
        proxy.arm(Fault(0, "blackhole"))
        began_s = time.monotonic()
        assert relay.round() == 1
        assert proxy.fired is not None
        assert time.monotonic() - began_s < 10
    assert _rows(log_address) == [b"a"]


def test_a_relay_that_was_idle_gets_its_lock_back_though_the_server_has_not_heard_of_its_end(
    outbox: tm.Outbox,
    log_address: str,
    application: Callable[[], pymysql.Connection[pymysql.cursors.Cursor]],
) -> None:
    shop = application()
    with outbox.relay(log_address) as relay:
        _insert(outbox, shop, b"a")
        shop.commit()
        assert relay._connection is not None
        kept = os.dup(relay._connection.fileno())  # So the system does not tell the server.
        try:
            relay._connection.used_s -= IDLE_S
            assert relay.round() == 1
        finally:
            os.close(kept)
    assert _rows(log_address) == [b"a"]


@pytest.mark.slow
def test_relays_killed_at_random_publish_everything_once_and_in_order(
    outbox: tm.Outbox,
    url: str,
    log_address: str,
    mariadb: MariaDB,
    database: str,
    tmp_path: Path,
    tally: Callable[[str, int], None],
) -> None:
    rounds = 500 if SOAK else 20
    expected: list[bytes] = []
    inserted = threading.Semaphore(0)
    is_over = threading.Event()

    def insert() -> None:
        """Each row is committed before the next is begun, so that their order is fixed."""
        with mariadb.connect(database) as shop:
            while not is_over.is_set():
                value = b"%d" % len(expected)
                _insert(outbox, shop, value)
                expected.append(value)
                inserted.release()
                time.sleep(0.001)

    inserting = threading.Thread(target=insert)
    inserting.start()
    nursery = Nursery(url, tmp_path, "relay")
    try:
        assert inserted.acquire(timeout=60)
        for number in range(rounds):
            assert inserted.acquire(timeout=60)  # So that each has something to do.
            nursery.run(number, 0.003 * (number % 17), log_address)
    finally:
        is_over.set()
        inserting.join()
        nursery.close()
    with relay_after_a_kill(url, log_address) as relay:
        relay.run(follow=False)
    assert _rows(log_address) == expected
    assert len(expected) > rounds
    tally("relays killed", rounds)


@pytest.mark.slow
def test_the_command_line_makes_an_outbox_and_relays_it(
    mariadb: MariaDB, database: str, shell: Shell, tmp_path: Path
) -> None:
    url = mariadb.url(database, "shell")
    made = shell.run(f"tidemill outbox create {url}")
    assert "outbox_shell" in made.out
    mariadb.execute(f"INSERT INTO {database}.outbox_shell (value) VALUES ('a'), ('b')")
    done = shell.run(f"tidemill --json outbox relay {url} {tmp_path / 'log'} --once")
    assert done.json() == {"published": 2}
    assert _rows(str(tmp_path / "log")) == [b"a", b"b"]


@pytest.mark.slow
def test_the_command_line_makes_a_sourced_outbox(
    mariadb: MariaDB, database: str, shell: Shell, tmp_path: Path
) -> None:
    url = mariadb.url(database, "shell")
    made = shell.good(f"tidemill --json outbox create {url} --sourced")
    columns = ["source_type", "source_id", "source_name", "value"]
    assert made.json() == {"table": f"`{database}`.`outbox_shell`", "columns": columns}
    names = ", ".join(columns)
    mariadb.execute(f"INSERT INTO {database}.outbox_shell ({names}) VALUES (1, 42, 'web', 'a')")
    shell.good(f"tidemill outbox relay {url} {tmp_path / 'log'} --once")
    assert _rows(str(tmp_path / "log")) == [
        {"source_type": 1, "source_id": 42, "source_name": "web", "value": b"a"}
    ]
    shell.good(f"tidemill outbox create {url} --sourced")
    assert "with sourced" in shell.run(f"tidemill outbox create {url}").err
