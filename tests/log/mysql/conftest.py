"""A log on the server that the tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.gateway.shell import shell
from tests.services.mariadb import MariaDB
from tidemill.log.mysql.store import MySQLLog

__all__ = ["open_log", "shell", "url"]


@pytest.fixture
def url(mariadb: MariaDB, database: str) -> str:
    return mariadb.url(database, "log")


@pytest.fixture
def open_log(url: str) -> Iterator[Callable[..., MySQLLog]]:
    """Opens the log with options, and closes it after the test."""
    stores: list[MySQLLog] = []

    def opened(**options: Any) -> MySQLLog:
        stores.append(MySQLLog(url, **options))
        return stores[-1]

    yield opened
    for store in stores:
        store.close()
