"""The stores that every test of the contract runs on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import count

import pytest

from tests.services.mariadb import MariaDB
from tidemill.records.opening import open_records
from tidemill.records.store import RecordStore

_names = count(1)

# There is no Aerospike that could be installed: aerospike://host:3000/namespace names one.
AEROSPIKE = os.environ.get("TIDEMILL_TEST_AEROSPIKE")
SERVERS = ("redis", "mysql", "etcd", *(["aerospike"] if AEROSPIKE else []))
# Two of them are enough for `make check`; the quickest.
_KINDS = [
    "memory",
    "redis",
    *(pytest.param(server, marks=pytest.mark.slow) for server in SERVERS[1:]),
]


@pytest.fixture(scope="session")
def record_database(mariadb: MariaDB) -> str:
    """A database that all tests of a worker share: each has records of its own."""
    mariadb.execute("CREATE DATABASE records")
    return "records"


@pytest.fixture(params=_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    """Where the store of this kind is, with the name of a ring that nobody else has."""
    name = f"ring-{os.getpid()}-{next(_names)}"
    if kind == "memory":
        return f"memory:{name}"
    if kind == "aerospike":
        return f"{AEROSPIKE}/{name}"
    if kind == "mysql":
        server = request.getfixturevalue("mariadb")
        return str(server.url(request.getfixturevalue("record_database"), name))
    return str(request.getfixturevalue(kind).url_of(name))


OpenStore = Callable[[], tuple[RecordStore, str]]


@pytest.fixture
def open_store(url: str) -> Iterator[OpenStore]:
    """Opens the store once more; the prefix for names of this test comes with it."""
    with ExitStack() as stack:

        def opened() -> tuple[RecordStore, str]:
            store, name = open_records(url)
            stack.enter_context(closing(store))
            return store, name

        yield opened


@pytest.fixture
def store(open_store: OpenStore) -> RecordStore:
    return open_store()[0]


@pytest.fixture
def name(open_store: OpenStore) -> str:
    """That of a record which nobody else has."""
    return f"{open_store()[1]}:record"
