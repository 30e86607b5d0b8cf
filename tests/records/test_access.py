"""Who may use a server, how it proves who it is, and what its settings promise."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

import tidemill as tm
from tests.services.certificate import Certificate, certificate
from tests.services.etcd import Etcd
from tests.services.mariadb import MariaDB
from tests.services.redis import Redis
from tests.services.server import Server, free_port, greeting, skip_or_fail
from tidemill.records.address import RecordAddress
from tidemill.records.opening import open_records
from tidemill.records.store import Write


def _check_hushed(error: BaseException | None) -> None:
    """No word of a password in an error, or in what it comes from."""
    while error is not None:
        assert "hush" not in f"{error!r} {error}"
        error = error.__cause__ or error.__context__


def _refusal(url: str) -> tm.TidemillError:
    with pytest.raises(tm.TidemillError) as caught:
        open_records(url)[0].get("alerts:ring")
    _check_hushed(caught.value)
    return caught.value


def _works(url: str) -> bool:
    with closing(open_records(url)[0]) as store:
        generation = store.create("access:ring", b"1")
        if generation is None:
            found = store.get("access:ring")
            assert found is not None
            generation = found.generation
        return store.delete("access:ring", generation)


def _needed(kind: type[Server]) -> None:
    if (reason := kind.missing()) is not None:
        skip_or_fail(reason)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("own"), "server")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("foreign"), "other")


@pytest.fixture(scope="module")
def guarded_redis(
    tmp_path_factory: pytest.TempPathFactory, own: Certificate
) -> Iterator[tuple[Redis, int]]:
    """A server that asks for a password, with a port for TLS."""
    _needed(Redis)
    tls_port = free_port()
    options = [
        *("--requirepass", "hush"),
        *("--tls-port", str(tls_port)),
        *("--tls-cert-file", str(own.path)),
        *("--tls-key-file", str(own.key_path)),
        *("--tls-auth-clients", "no"),
    ]
    users = ("app on >hush2 ~tidemill:* +@all -config", "guest on >hush3 ~other:* +@all")
    with Redis(tmp_path_factory.mktemp("guarded"), *options) as server:
        for user in users:
            said = greeting(server.port, f"AUTH hush\r\nACL SETUSER {user}\r\n".encode())
            assert said.startswith(b"+OK\r\n")
        yield server, tls_port


@pytest.mark.slow
def test_redis_asks_for_a_password(guarded_redis: tuple[Redis, int]) -> None:
    port = guarded_redis[0].port
    assert _works(f"redis://:hush@127.0.0.1:{port}/alerts")
    assert _works(f"redis://app:hush2@127.0.0.1:{port}/alerts")
    none = _refusal(f"redis://127.0.0.1:{port}/alerts")
    assert isinstance(none, tm.NoAccess)
    assert "put the password into the URL" in str(none)
    for login in (":hushed", "app:hush", "guest:hush3"):
        assert isinstance(_refusal(f"redis://{login}@127.0.0.1:{port}/alerts"), tm.NoAccess)


@pytest.mark.slow
def test_redis_that_does_not_tell_its_settings_is_reported(
    guarded_redis: tuple[Redis, int],
) -> None:
    store, _ = open_records(f"redis://app:hush2@127.0.0.1:{guarded_redis[0].port}/alerts")
    with closing(store):
        [problem] = store.problems()
    assert "cannot be read" in problem


@pytest.mark.slow
def test_redis_proves_who_it_is(
    guarded_redis: tuple[Redis, int], own: Certificate, foreign: Certificate
) -> None:
    port = guarded_redis[1]
    assert _works(f"rediss://:hush@localhost:{port}/alerts?ssl_ca={own.path}")
    for wrong in (
        f"rediss://:hush@localhost:{port}/alerts?ssl_ca={foreign.path}",
        f"rediss://:hush@localhost:{port}/alerts",
        f"rediss://:hush@127.0.0.1:{port}/alerts?ssl_ca={own.path}",
    ):
        refusal = _refusal(wrong)
        assert isinstance(refusal, tm.NoAccess)
        assert "does not prove with TLS who it is" in str(refusal)
    missing = _refusal(f"rediss://:hush@localhost:{port}/alerts?ssl_ca=/no/such/file")
    assert isinstance(missing, tm.InvalidInput)


def test_redis_has_several_databases(redis: Redis) -> None:
    one, _ = open_records(f"redis://127.0.0.1:{redis.port}/1/alerts")
    two, _ = open_records(f"redis://127.0.0.1:{redis.port}/2/alerts")
    with closing(one), closing(two):
        assert one.create("databases:ring", b"1") is not None
        assert two.get("databases:ring") is None
    for number in ("99", "9" * 20):
        refusal = _refusal(f"redis://127.0.0.1:{redis.port}/{number}/alerts")
        assert isinstance(refusal, tm.InvalidInput)
        assert "name a lower database" in str(refusal)


def test_a_password_for_a_redis_that_has_none_is_to_be_left_out(redis: Redis) -> None:
    refusal = _refusal(f"redis://:hush@127.0.0.1:{redis.port}/alerts")
    assert isinstance(refusal, tm.NoAccess)
    assert "leave that out of the URL" in str(refusal)


@pytest.mark.slow
def test_a_redis_that_knows_no_passwords_is_told_of_without_the_one_it_was_given(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Redis)
    with Redis(tmp_path_factory.mktemp("open"), "--rename-command", "AUTH", "") as server:
        for login in (":hush", "app:hush"):
            refusal = _refusal(f"redis://{login}@127.0.0.1:{server.port}/alerts")
            assert isinstance(refusal, tm.StorageFailed)
            assert "unknown command" in str(refusal)


@pytest.mark.slow
def test_a_redis_that_takes_no_more_clients_is_tried_again(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Redis)
    crowded = Redis(tmp_path_factory.mktemp("crowded"), "--maxclients", "2")
    with crowded as server, ExitStack() as stack:
        others = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        for other in others:
            stack.enter_context(closing(other))
            other.sendall(b"PING\r\n")
            assert other.recv(100) == b"+PONG\r\n"
        with pytest.raises(tm.Unavailable, match="max number of clients"):
            tm.Ring(f"{server.url_of('alerts')}?timeout_s=2", capacity=3)
        leaving = threading.Timer(0.3, others[0].close)
        leaving.start()
        with tm.Ring(server.url_of("alerts"), capacity=3) as ring:
            assert ring.enqueue(b"x") == 0
        leaving.join()


@pytest.mark.slow
def test_a_member_of_a_redis_cluster_is_refused_before_anything_is_written(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Redis)
    with Redis(tmp_path_factory.mktemp("member"), "--cluster-enabled", "yes") as server:
        # It has every key itself, and so would take them all, until the cluster grows.
        said = greeting(server.port, b"CLUSTER ADDSLOTSRANGE 0 16383\r\n")
        assert said == b"+OK\r\n"
        with pytest.raises(tm.InvalidInput, match="Cluster, name a Redis that is by itself"):
            tm.Ring(server.url_of("alerts"), capacity=10)
        assert greeting(server.port, b"DBSIZE\r\n") == b":0\r\n"


@pytest.mark.slow
def test_redis_is_used_by_those_who_may_not_ask_whether_it_is_by_itself(
    guarded_redis: tuple[Redis, int],
) -> None:
    port = guarded_redis[0].port
    said = greeting(port, b"AUTH hush\r\nACL SETUSER plain on >hush4 ~tidemill:* +@all -info\r\n")
    assert said.startswith(b"+OK\r\n")
    assert _works(f"redis://plain:hush4@127.0.0.1:{port}/alerts")


@pytest.mark.slow
def test_settings_of_redis_that_void_what_it_confirms_are_told(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Redis)
    lax = ("--appendfsync", "everysec", "--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru")
    with Redis(tmp_path_factory.mktemp("lax"), *lax) as server:
        store, _ = open_records(server.url_of("alerts"))
        with closing(store):
            assert [one.partition(" =")[0] for one in store.problems()] == [
                "appendfsync",
                "maxmemory-policy",
            ]


@pytest.mark.slow
def test_a_full_redis_is_full(tmp_path_factory: pytest.TempPathFactory) -> None:
    _needed(Redis)
    with Redis(tmp_path_factory.mktemp("full"), "--maxmemory", "4mb") as server:
        store, _ = open_records(server.url_of("alerts"))
        writes = [Write(f"full:{number}", bytes(1_000_000), None) for number in range(10)]
        with closing(store), pytest.raises(tm.DiskFull, match="raise maxmemory"):
            store.write_many(writes)


@pytest.fixture(scope="module")
def guarded_etcd(
    tmp_path_factory: pytest.TempPathFactory, own: Certificate
) -> Iterator[tuple[Etcd, int]]:
    """A server that asks for a password, with a port for TLS."""
    _needed(Etcd)
    tls_port = free_port()
    server = Etcd(tmp_path_factory.mktemp("guarded"))
    urls = f"http://127.0.0.1:{server.port},https://127.0.0.1:{tls_port}"
    server.options = (
        *("--listen-client-urls", urls),
        *("--advertise-client-urls", urls),
        *("--cert-file", str(own.path), "--key-file", str(own.key_path)),
    )
    with server:
        for user, password in (("root", "hush"), ("app", "hush2")):
            server.ask("/v3/auth/user/add", {"name": user, "password": password})
        server.ask("/v3/auth/role/add", {"name": "root"})
        server.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        server.ask("/v3/auth/enable", {})
        yield server, tls_port


@pytest.mark.slow
def test_etcd_asks_for_a_password(guarded_etcd: tuple[Etcd, int]) -> None:
    port = guarded_etcd[0].port
    assert _works(f"etcd://root:hush@127.0.0.1:{port}/alerts")
    for login in ("", "root:hushed@", "app:hush2@", "nobody:hush@"):
        refusal = _refusal(f"etcd://{login}127.0.0.1:{port}/alerts")
        assert isinstance(refusal, tm.NoAccess), refusal


@pytest.mark.slow
def test_etcd_proves_who_it_is(
    guarded_etcd: tuple[Etcd, int], own: Certificate, foreign: Certificate
) -> None:
    port = guarded_etcd[1]
    assert _works(f"etcds://root:hush@localhost:{port}/alerts?ssl_ca={own.path}")
    refusal = _refusal(f"etcds://root:hush@localhost:{port}/alerts?ssl_ca={foreign.path}")
    assert isinstance(refusal, tm.NoAccess)
    assert "does not prove with TLS who it is" in str(refusal)


@pytest.mark.slow
def test_a_token_of_etcd_that_is_not_valid_any_more_is_replaced(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Etcd)
    with Etcd(tmp_path_factory.mktemp("token"), "--auth-token-ttl=60") as server:
        server.ask("/v3/auth/user/add", {"name": "root", "password": "hush"})
        server.ask("/v3/auth/role/add", {"name": "root"})
        server.ask("/v3/auth/user/grant", {"user": "root", "role": "root"})
        server.ask("/v3/auth/enable", {})
        store, _ = open_records(f"etcd://root:hush@127.0.0.1:{server.port}/alerts")
        with closing(store):
            generation = store.create("token:ring", b"1")
            assert generation is not None
            # A new password ends a user's tokens, as their time does; though it is the old one.
            root = {"name": "root", "password": "hush"}
            token = server.ask("/v3/auth/authenticate", root)
            server.ask("/v3/auth/user/changepw", root, token["token"])
            assert store.replace("token:ring", b"2", generation) is not None


@pytest.mark.slow
def test_mysql_asks_for_a_password_and_a_database(mariadb: MariaDB, database: str) -> None:
    mariadb.execute("CREATE OR REPLACE USER app IDENTIFIED BY 'hush'")
    mariadb.execute(f"GRANT ALL ON {database}.* TO app")
    mariadb.execute("CREATE OR REPLACE USER guest IDENTIFIED BY 'hush'")
    server = f"127.0.0.1:{mariadb.port}/{database}/alerts"
    assert _works(f"mysql://app:hush@{server}")
    assert isinstance(_refusal(f"mysql://app:hushed@{server}"), tm.NoAccess)
    assert isinstance(_refusal(f"mysql://guest:hush@{server}"), tm.NoAccess)
    nowhere = _refusal(f"mysql://root@127.0.0.1:{mariadb.port}/no_such_database/alerts")
    assert isinstance(nowhere, tm.NotAQueue)


@pytest.mark.slow
def test_settings_of_mysql_that_void_what_it_confirms_are_told(
    mariadb: MariaDB, database: str
) -> None:
    store, _ = open_records(mariadb.url(database, "alerts"))
    with closing(store):
        assert store.problems() == ()
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        try:
            [problem] = store.problems()
        finally:
            mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    assert problem.startswith("innodb_flush_log_at_trx_commit = 2")


@pytest.mark.slow
def test_a_table_without_transactions_is_refused(mariadb: MariaDB, database: str) -> None:
    mariadb.execute(
        f"CREATE TABLE {database}.tidemill_records (name VARBINARY(128) PRIMARY KEY, "
        "generation BIGINT, written_us BIGINT, data LONGBLOB) ENGINE=MyISAM"
    )
    refusal = _refusal(mariadb.url(database, "alerts"))
    assert isinstance(refusal, tm.StorageFailed)
    assert "has no transactions" in str(refusal)


@pytest.mark.slow
def test_another_member_of_etcd_is_asked_when_one_does_not_answer(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    _needed(Etcd)
    members = [Etcd(tmp_path_factory.mktemp("member")) for _ in range(3)]
    peers = {f"n{number}": member.peer_url for number, member in enumerate(members)}
    for peer, member in zip(peers, members, strict=True):
        member.join(peer, peers)
    try:
        for member in members:
            member.start(wait=False)
        for member in members:
            member.wait()
        hosts = ",".join(f"127.0.0.1:{member.port}" for member in members)
        store, _ = open_records(f"etcd://{hosts}/alerts?timeout_s=10")
        with closing(store):
            generation = store.create("members:ring", b"0")
            assert generation is not None
            members[0].kill()
            # It may have been the leader, without which a write takes time, or is in doubt; and a
            # busy machine may need some tries to choose another.
            found, deadline_s = None, time.monotonic() + 120
            while found is None or found.data != b"1":
                assert time.monotonic() < deadline_s
                with suppress(tm.OutcomeUnknown, tm.Unavailable):
                    store.replace("members:ring", b"1", generation)
                    found = store.get("members:ring")
        hasty, _ = open_records(f"etcd://{hosts}/alerts?timeout_s=1")
        with closing(hasty):
            members[1].kill()
            # Two of three are gone: nobody can write, or read what may be old.
            with pytest.raises((tm.Unavailable, tm.OutcomeUnknown)):
                hasty.replace("members:ring", b"9", found.generation)
            with pytest.raises(tm.Unavailable):
                hasty.get("members:ring")
    finally:
        for member in members:
            member.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "package"),
    [("mysql://root@127.0.0.1:1/shop/alerts", "pymysql"), ("aerospike://h/n/alerts", "aerospike")],
)
def test_a_package_that_is_not_installed_is_named(url: str, package: str) -> None:
    code = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "import tidemill as tm\n"
        "from tidemill.records.opening import open_records\n"
        f"try: open_records({url!r})\n"
        "except tm.MissingExtra as error: print(error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'tidemill[" in run.stdout


@pytest.mark.parametrize(
    "url",
    [
        "redis://app:hush@host",
        "redis://app:hush@host/",
        "redis://app:hush@host/x/alerts",
        "redis://app:hush@host/0/alerts/more",
        "redis://app:hush@host:99999/alerts",
        "redis://app:hush@host:port/alerts",
        "redis://app:hush@one,two/alerts",
        "redis://app:hush@/alerts",
        "redis://app:hush@one..two/alerts",
        "rediss://app:hush@.two/alerts",
        f"etcd://app:hush@one,{'two' * 30}/alerts",
        "redis://app:hush@bü..cher/alerts",
        "redis://app:hush@o\x00ne/alerts",
        "redis://app:hush%00@one/alerts",
        "mysql://app%00:hush@one/shop/alerts",
        "mysql://app:hush\udcff@one/shop/alerts",
        "redis://app:hush\udcff@one/alerts",
        "mysql://app:hush@one/shop%00/alerts",
        "redis://app:hush@host/alerts?ssl_ca=x",
        "rediss://app:hush@host/alerts?ssl_key=x",
        "etcds://app:hush@host/alerts?ssl_ca=x&ssl_key=x",
        "redis://app:hush@host/alerts?timeout_s=0",
        "redis://app:hush@host/alerts?timeout_s=soon",
        "redis://app:hush@host/alerts#part",
        "redis://app:hu/sh@host/alerts",
        "mysql://app:hush@host/alerts",
        "etcd://app:hush@host/shop/alerts",
        "aerospike://app:hush@host/alerts",
        "redis://app:hush@host/bad name",
        "ftp://app:hush@host/alerts",
        "alerts",
        "memory:",
        "memory:a/b",
    ],
)
def test_addresses_that_are_none_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(tm.InvalidInput) as caught:
        open_records(url)
    _check_hushed(caught.value)


def test_an_address_is_shown_without_its_password() -> None:
    address = RecordAddress.parse("redis://app:hush@host/alerts")
    assert (address.password, "hush" in repr(address)) == ("hush", False)


def test_the_place_of_a_store_has_no_password(tmp_path: Path) -> None:
    store, name = open_records("redis://app:hush@[::1]:7000/2/alerts?timeout_s=1")
    assert (store.place, name) == ("redis://app@[::1]:7000/2", "alerts")
    etcd, _ = open_records("etcd://app:hush@one,two:1/alerts")
    assert etcd.place == "etcd://app@one:2379,two:1"
