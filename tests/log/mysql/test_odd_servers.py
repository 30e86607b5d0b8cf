"""Servers that are set up in ways of their own, and what only looks like a server."""

from __future__ import annotations

import importlib.util
import socket
import threading
import traceback
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import tidemill as tm
from tests.services.mariadb import MariaDB
from tests.services.server import skip_or_fail
from tidemill.log.sql.checkup import verify


@pytest.fixture(scope="module")
def lower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server that keeps the names of tables in lower case."""
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    with MariaDB(tmp_path_factory.mktemp("lower"), "--lower-case-table-names=1") as server:
        server.execute("CREATE DATABASE shop")
        yield server


@pytest.mark.slow
def test_a_log_keeps_its_name_where_tables_are_in_lower_case(lower: MariaDB) -> None:
    url = lower.url("shop", "Orders")
    for number in (1, 2):
        with tm.Log(url) as log, log.publisher() as out:
            assert out.send(b"row").first == number
    assert verify(url).worst is None
    outbox = tm.Outbox(lower.url("shop", "Events"))
    outbox.create()
    with lower.connect("shop") as connection, connection.cursor() as cursor:
        outbox.insert(cursor, [b"event"])
    with outbox.relay(url) as relay:
        assert relay.run(follow=False) == 1
    with pytest.raises(tm.InvalidName, match="by case alone"):
        tm.Log(lower.url("shop", "orders"))


@pytest.mark.slow
def test_a_way_to_log_in_that_needs_a_package_names_it(lower: MariaDB) -> None:
    if importlib.util.find_spec("nacl") is not None:
        pytest.skip("the package is installed")
    lower.execute("INSTALL SONAME 'auth_ed25519'")
    lower.execute("CREATE USER app IDENTIFIED VIA ed25519 USING PASSWORD('hush')")
    with pytest.raises(tm.MissingExtra, match="pynacl"):
        tm.Log(f"mysql://app:hush@127.0.0.1:{lower.port}/shop/log")


@pytest.mark.slow
@pytest.mark.parametrize("password", ["pässword", "密码", "🔑'\"\\ %/@:"])
def test_a_password_may_have_letters_of_any_language(lower: MariaDB, password: str) -> None:
    lower.execute("CREATE OR REPLACE USER app IDENTIFIED BY %s", password)
    lower.execute("GRANT ALL ON shop.* TO app")
    place = f"127.0.0.1:{lower.port}/shop"
    login = f"app:{quote(password, safe='')}"
    with tm.Log(f"mysql://{login}@{place}/letters") as log, log.publisher() as out:
        assert out.send(b"row").durability == "synced"
    with tm.Ring(f"mysql://{login}@{place}/letters", capacity=9) as ring:
        ring.enqueue(b"entry")
    with pytest.raises(tm.NoAccess) as caught:
        tm.Log(f"mysql://{login}é@{place}/letters")
    assert password not in "".join(traceback.format_exception(caught.value))


@pytest.mark.slow
def test_an_account_that_may_not_be_used_is_no_access(lower: MariaDB) -> None:
    lower.execute("CREATE USER expired IDENTIFIED BY 'hush' PASSWORD EXPIRE")
    lower.execute("CREATE USER locked IDENTIFIED BY 'hush' ACCOUNT LOCK")
    for user in ("expired", "locked"):
        with pytest.raises(tm.NoAccess) as caught:
            tm.Log(f"mysql://{user}:hush@127.0.0.1:{lower.port}/shop/log")
        assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\x00\x00\x00\x00",
        b"\x01\x00\x00\x00\xff",
        b"\x05\x00\x00\x00\x0a8.0\x00",
        b"\x04\x00\x00\x00\x0a\xff\xfe\x00",
    ],
)
def test_what_is_no_server_of_mysql_is_unavailable(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(answer)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            with pytest.raises(tm.Unavailable, match="gave up"):
                tm.Log(
                    f"mysql://app@127.0.0.1:{listener.getsockname()[1]}/shop/log?timeout_s=5",
                    retry_s=0.1,
                )
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
