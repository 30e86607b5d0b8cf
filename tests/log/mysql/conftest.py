"""A log on the server that the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pymysql
import pytest

from tests.gateway.shell import shell
from tests.log.sql.packet_faults import KINDS, PacketFaults
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import TcpProxy
from tidemill.log.sql.store import ServerLog

__all__ = ["faults", "open_log", "other", "proxy", "shell", "url"]


@pytest.fixture
def proxy(mariadb: MariaDB) -> Iterator[TcpProxy]:
    """In front of the server."""
    with TcpProxy(mariadb.port) as proxy:
        yield proxy


@pytest.fixture(params=KINDS)
def faults(
    request: pytest.FixtureRequest,
    mariadb: MariaDB,
    database: str,
    proxy: TcpProxy,
    tally: Callable[[str, int], None],
) -> Iterator[PacketFaults]:
    """The log behind the proxy, with one kind of fault."""
    faults = PacketFaults(
        proxy, request.param, mariadb.url(database, "log", port=proxy.port), tally
    )
    yield faults
    faults.close()


@pytest.fixture
def url(mariadb: MariaDB, database: str) -> str:
    return mariadb.url(database, "log")


@pytest.fixture
def open_log(url: str) -> Iterator[Callable[..., ServerLog]]:
    """Opens the log with options, and closes it after the test."""
    stores: list[ServerLog] = []

    def opened(**options: Any) -> ServerLog:
        stores.append(ServerLog(url, **options))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()


@pytest.fixture
def other(mariadb: MariaDB, database: str) -> Iterator[pymysql.cursors.Cursor]:
    """Another client of the database, in a transaction."""
    with mariadb.connect(database) as connection, connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        yield cursor
