"""Servers as fixtures: one of each per worker of the run, started when a test first asks."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from tests.services.etcd import Etcd
from tests.services.mariadb import MariaDB
from tests.services.postgres import Postgres
from tests.services.redis import Redis
from tests.services.seaweedfs import ENVIRONMENT, SeaweedFS
from tests.services.server import skip_or_fail

_numbers = count(1)


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """A server at full durability that all tests of a worker share."""
    if (reason := MariaDB.missing()) is not None:
        skip_or_fail(reason)
    with MariaDB(tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def database(mariadb: MariaDB) -> str:
    """A fresh database on that server; it goes with the server, since dropping it takes longer."""
    name = f"test_{next(_numbers)}"
    mariadb.execute(f"CREATE DATABASE {name}")
    return name


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server at full durability that all tests of a worker share; each has logs of its own."""
    if (reason := Postgres.missing()) is not None:
        skip_or_fail(reason)
    with Postgres(tmp_path_factory.mktemp("postgres")) as server:
        yield server


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """A server at full durability that all tests of a worker share; each has keys of its own."""
    if (reason := Redis.missing()) is not None:
        skip_or_fail(reason)
    with Redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """A cluster of one member that all tests of a worker share; each has keys of its own."""
    if (reason := Etcd.missing()) is not None:
        skip_or_fail(reason)
    with Etcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(scope="session")
def seaweedfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    """An object store that all tests of a worker share."""
    if (reason := SeaweedFS.missing()) is not None:
        skip_or_fail(reason)
    with SeaweedFS(tmp_path_factory.mktemp("seaweedfs")) as server:
        yield server


@pytest.fixture
def prefix(seaweedfs: SeaweedFS, monkeypatch: pytest.MonkeyPatch) -> str:
    """A fresh place in the bucket of that server, with its credentials in the environment."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    return f"test/{next(_numbers)}"
