"""What the server refuses is told at once, and by its cause; the rest is tried again."""

from __future__ import annotations

import time

import psycopg
import pytest

import tidemill as tm
from tests.services.postgres import Postgres
from tests.services.server import free_port
from tidemill.log.postgres.refusals import refusal, refusal_at_the_door
from tidemill.log.sql.connection import Busy, Duplicate, Lost
from tidemill.log.sql.store import ServerLog

PLACE = "postgresql://app@db:5432/shop/orders"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("40001", Busy),
        ("40P01", Busy),
        ("55P03", Busy),
        ("57P01", Lost),
        ("57014", Lost),
        ("08006", Lost),
        ("25P03", Lost),
        ("25P04", Lost),
        ("53300", Lost),
        ("23505", Duplicate),
        ("53100", tm.DiskFull),
        ("28P01", tm.NoAccess),
        ("42501", tm.NoAccess),
        ("25006", tm.NoAccess),
        ("3D000", tm.NotAQueue),
        ("54000", tm.TooLarge),
        ("42P01", tm.Corrupt),
        ("XX001", tm.Corrupt),
        ("22003", tm.StorageFailed),
    ],
)
def test_each_code_of_the_server_is_an_error_of_ours(code: str, kind: type[Exception]) -> None:
    cause = psycopg.errors.lookup(code)("some words")
    found = refusal(cause, PLACE)
    assert type(found) is kind
    assert code in str(found) or kind is Lost


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ('FATAL:  password authentication failed for user "app"', tm.NoAccess),
        ("fe_sendauth: no password supplied", tm.NoAccess),
        ('FATAL:  no pg_hba.conf entry for host "::1", user "app"', tm.NoAccess),
        ('FATAL:  database "shop" does not exist', tm.NotAQueue),
        ("SSL error: certificate verify failed", tm.NoAccess),
        ('server certificate for "db" does not match host name "localhost"', tm.NoAccess),
        ("FATAL:  the database system is starting up", Lost),
        ("FATAL:  sorry, too many clients already", Lost),
        ("Connection refused", Lost),
        ("connection timeout expired", Lost),
    ],
)
def test_what_ends_an_attempt_to_connect_is_told_by_its_words(
    words: str, kind: type[Exception]
) -> None:
    assert type(refusal_at_the_door(psycopg.OperationalError(words), PLACE)) is kind


@pytest.mark.slow
def test_a_role_that_is_not_there_and_a_database_that_is_not_are_told_at_once(
    postgres: Postgres,
) -> None:
    with pytest.raises(tm.NoAccess, match='role "nobody-here" does not exist'):
        tm.Log(postgres.url("orders").replace("root@", "nobody-here@"))
    with pytest.raises(tm.NotAQueue, match='database "nowhere" does not exist'):
        tm.Log(postgres.url("orders").replace("/postgres/", "/nowhere/"))


@pytest.mark.slow
def test_a_role_without_rights_leaves_no_trace(postgres: Postgres) -> None:
    postgres.execute("CREATE ROLE reader LOGIN")
    url = postgres.url().replace("root@", "reader@")
    with pytest.raises(tm.NoAccess, match="permission denied"):
        tm.Log(url)
    name = url.rpartition("/")[2]
    assert postgres.execute("SELECT 1 FROM pg_class WHERE relname LIKE %s", f"queue_{name}%") == []


@pytest.mark.slow
def test_a_log_that_is_not_there_is_not_made_by_reading_it(url: str) -> None:
    with pytest.raises(tm.NotAQueue, match="no log named"):
        tm.Log(url, create=False)


def test_a_server_that_is_away_is_waited_for_and_then_told() -> None:
    with pytest.raises(tm.Unavailable, match=r"gave up after 0 s: no connection"):
        ServerLog(f"postgresql://app:hush-hush@127.0.0.1:{free_port()}/shop/orders", retry_s=0)


def test_the_password_is_in_no_message() -> None:
    url = f"postgresql://app:hush-hush@127.0.0.1:{free_port()}/shop/orders"
    with pytest.raises(tm.Unavailable) as caught:
        ServerLog(url, retry_s=0)
    assert "hush-hush" not in repr(caught.value)
    assert "hush-hush" not in repr(caught.value.__cause__)


def test_certificates_that_cannot_be_read_are_told_of_at_once(tmp_path: object) -> None:
    with pytest.raises(tm.InvalidInput, match="ssl_ca names"):
        tm.Log(f"postgresql://app@127.0.0.1:1/shop/orders?ssl_ca={tmp_path}/none")


@pytest.mark.slow
def test_a_server_without_tls_is_refused_if_certificates_are_asked_for(
    postgres: Postgres,
) -> None:
    with pytest.raises(tm.NoAccess, match="does not support SSL"):
        tm.Log(f"{postgres.url()}?ssl_ca={__file__}")


def test_an_outbox_is_on_mysql_only() -> None:
    with pytest.raises(tm.InvalidInput, match="an outbox is a table on MySQL or MariaDB"):
        tm.Outbox("postgresql://app:hush-hush@127.0.0.1/shop/orders")


@pytest.mark.slow
def test_a_wrong_password_is_told_at_once_and_not_shown(postgres: Postgres) -> None:
    postgres.execute("CREATE ROLE keeper SUPERUSER LOGIN PASSWORD 'right'")
    doors = postgres.folder / "data" / "pg_hba.conf"
    doors.write_text(f"host all keeper all scram-sha-256\n{doors.read_text()}")
    before = postgres.execute("SELECT pg_conf_load_time(), pg_reload_conf()")[0][0]
    while postgres.execute("SELECT pg_conf_load_time()")[0][0] == before:
        time.sleep(0.01)
    url = postgres.url()
    with pytest.raises(tm.NoAccess, match="password authentication failed") as caught:
        tm.Log(url.replace("root@", "keeper:mistaken@"))
    assert "mistaken" not in str(caught.value)
    with pytest.raises(tm.NoAccess, match="no password supplied"):
        tm.Log(url.replace("root@", "keeper@"))
    with tm.Log(url.replace("root@", "keeper:right@")) as log, log.publisher() as out:
        assert out.send(b"one").first == 1
