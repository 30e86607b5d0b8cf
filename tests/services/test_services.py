"""The servers and the proxy that the fault tests stand on do what they say."""

from __future__ import annotations

import pymysql
import pytest

from tests.services.mariadb import MariaDB
from tests.services.nats import Nats
from tests.services.server import skip_or_fail
from tests.services.tcp_proxy import Fault, Kind, TcpProxy


def _through(
    proxy: TcpProxy, database: str, *, patience_s: float = 30
) -> pymysql.Connection[pymysql.cursors.Cursor]:
    return pymysql.connect(
        host="127.0.0.1",
        port=proxy.port,
        user="root",
        database=database,
        autocommit=True,
        read_timeout=patience_s,
    )


def test_what_was_committed_survives_a_kill_of_the_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    with MariaDB(tmp_path_factory.mktemp("killed")) as server:
        server.execute("CREATE TABLE mysql.kept (id INT PRIMARY KEY) ENGINE=InnoDB")
        server.execute("INSERT INTO mysql.kept VALUES (1)")
        connection = server.connect()
        server.kill()
        with pytest.raises(pymysql.err.OperationalError):
            connection.ping(reconnect=False)
        connection.close()
        server.start()
        assert server.execute("SELECT id FROM mysql.kept") == [(1,)]


@pytest.mark.parametrize("kind", ["cut", "tear", "blackhole"])
@pytest.mark.parametrize(("at", "executed"), [(0, False), (1, True), (2, True)])
def test_a_fault_hits_the_packet_that_it_is_for(
    mariadb: MariaDB,
    database: str,
    kind: Kind,
    at: int,
    executed: bool,
) -> None:
    """Packet 0 is the statement, packet 1 its answer, packet 2 the next statement."""
    mariadb.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY) ENGINE=InnoDB")
    with TcpProxy(mariadb.port) as proxy:
        # Nothing but patience ends a black hole.
        connection = _through(proxy, database, patience_s=3 if kind == "blackhole" else 30)
        proxy.arm(Fault(at, kind))
        insert = "INSERT INTO t SELECT COUNT(*) FROM t"
        if at == 2:
            connection.query(insert)
        with pytest.raises((pymysql.err.OperationalError, TimeoutError)):
            connection.query(insert)
        assert proxy.fired is not None
        assert proxy.fired.direction == ("to client" if at == 1 else "to server")
        again = _through(proxy, database)
        assert again.query("SELECT id FROM t") == (1 if executed else 0)
        connection.close()
        again.close()


def test_without_a_fault_packets_pass_and_are_counted(
    mariadb: MariaDB,
    database: str,
) -> None:
    with TcpProxy(mariadb.port) as proxy:
        connection = _through(proxy, database)
        proxy.arm(None)
        connection.query("SET @a = 1")
        assert (proxy.packets, proxy.fired) == (2, None)
        proxy.refuse(True)
        with pytest.raises(pymysql.err.OperationalError):
            _through(proxy, database)
        connection.close()


def test_the_server_of_the_benchmarks_starts_and_ends(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if (reason := Nats.missing()) is not None:
        pytest.skip(reason)  # Only benchmarks need it, so that no test has to run it.
    with Nats(tmp_path_factory.mktemp("server")) as server:
        assert server.answers()
    assert not server.answers()
