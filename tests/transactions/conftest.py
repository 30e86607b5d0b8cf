"""Each test runs once for everything that transactions can be committed to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.services.mariadb import MariaDB
from tests.services.postgres import Postgres
from tests.transactions.targets import (
    FileLogTarget,
    MySQLTarget,
    PostgresTarget,
    QueueTarget,
    Target,
)


@pytest.fixture(params=["queue", "log", "mysql", pytest.param("postgres", marks=pytest.mark.slow)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    if request.param == "queue":
        return QueueTarget(tmp_path / "queue")
    if request.param == "log":
        return FileLogTarget(tmp_path / "log")
    if request.param == "postgres":
        postgres: Postgres = request.getfixturevalue("postgres")
        return PostgresTarget(postgres.url())
    server: MariaDB = request.getfixturevalue("mariadb")
    return MySQLTarget(server.url(request.getfixturevalue("database"), "log"))
