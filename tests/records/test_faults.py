"""Servers and networks that fail: what is known about a write is told, and nothing is written twice
behind anybody's back.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest

import tidemill as tm
from tests.records.conftest import SERVERS
from tests.records.test_garbled_answers import answering
from tests.services.etcd import Etcd
from tests.services.mariadb import MariaDB
from tests.services.redis import Redis
from tests.services.server import Server, skip_or_fail
from tests.services.tcp_proxy import Fault, Kind, Speech, TcpProxy
from tidemill.records.opening import open_records
from tidemill.records.store import RecordStore

_names = count(1)
_SPEECH: dict[str, Speech] = {"mysql": "mysql", "redis": "any", "etcd": "any"}
_TIMEOUT_S = 3.0  # for faults that only patience ends; a busy disk must not be taken for one


class Place(NamedTuple):
    """A server that tests may kill, and a proxy in front of it."""

    kind: str
    server: Server
    proxy: TcpProxy

    def url(self, name: str, timeout_s: float, *, through_proxy: bool = True) -> str:
        port = self.proxy.port if through_proxy else self.server.port
        home = "shop/" if self.kind == "mysql" else ""
        user = "root@" if self.kind == "mysql" else ""
        return f"{self.kind}://{user}127.0.0.1:{port}/{home}{name}?timeout_s={timeout_s}"


def _server(kind: str, folder: Path) -> Server:
    made: dict[str, type[Server]] = {"mysql": MariaDB, "redis": Redis, "etcd": Etcd}
    if (reason := made[kind].missing()) is not None:
        skip_or_fail(reason)
    return made[kind](folder)


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=pytest.mark.slow) for kind in _SPEECH]
)
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    kind = str(request.param)
    with _server(kind, tmp_path_factory.mktemp(kind)) as server:
        if isinstance(server, MariaDB):
            server.execute("CREATE DATABASE shop")
        with TcpProxy(server.port, _SPEECH[kind]) as proxy:
            yield Place(kind, server, proxy)


@pytest.fixture
def name() -> str:
    return f"faults-{next(_names)}"


@pytest.fixture
def store(place: Place, name: str, request: pytest.FixtureRequest) -> Iterator[RecordStore]:
    """A store behind the proxy that soon loses patience, where that is what ends the fault."""
    is_noticed = request.node.callspec.params.get("kind") in ("cut", "tear")
    with closing(open_records(place.url(name, 30 if is_noticed else _TIMEOUT_S))[0]) as opened:
        yield opened


def _direct(place: Place, name: str) -> RecordStore:
    return open_records(place.url(name, 60, through_proxy=False))[0]


def _warm(store: RecordStore, name: str) -> int:
    """Make a record, and use the connection for all that follows; returns its generation."""
    first = store.create(name, b"0")
    assert first is not None
    second = store.replace(name, b"1", first)
    assert second is not None
    assert store.get(name) is not None
    return second


@pytest.mark.parametrize("kind", ["cut", "tear", "blackhole"])
@pytest.mark.parametrize(("at", "is_written"), [(0, False), (1, True)])
def test_a_write_whose_answer_is_lost_is_of_unknown_outcome(
    place: Place, store: RecordStore, name: str, kind: Kind, at: int, is_written: bool
) -> None:
    """Packet 0 is the write, packet 1 its answer."""
    generation = _warm(store, name)
    place.proxy.arm(Fault(at, kind))
    started_s = time.monotonic()
    with pytest.raises(tm.OutcomeUnknown, match="may have taken effect"):
        store.replace(name, b"2", generation)
    assert time.monotonic() - started_s < _TIMEOUT_S + 2
    assert place.proxy.fired is not None
    assert place.proxy.fired.direction == ("to client" if at else "to server")
    with closing(_direct(place, name)) as looking:
        found = looking.get(name)
    assert found is not None
    assert found.data == (b"2" if is_written else b"1")
    # The store is of use as before, and tells whoever asks.
    again = store.replace(name, b"3", generation)
    assert (again is None) == is_written


@pytest.mark.parametrize("kind", ["cut", "tear"])
@pytest.mark.parametrize("at", [0, 1])
def test_a_read_whose_answer_is_lost_is_asked_again(
    place: Place, store: RecordStore, name: str, kind: Kind, at: int
) -> None:
    generation = _warm(store, name)
    place.proxy.arm(Fault(at, kind))
    found = store.get(name)
    assert place.proxy.fired is not None
    assert found is not None
    assert (found.data, found.generation) == (b"1", generation)


def test_a_connection_that_was_cut_while_idle_is_noticed_before_a_write(
    place: Place, store: RecordStore, name: str
) -> None:
    generation = _warm(store, name)
    place.proxy.arm(None)
    place.proxy.cut_all()
    assert store.replace(name, b"2", generation) is not None


def test_a_server_that_refuses_connections_is_unavailable_and_nothing_was_done(
    place: Place, store: RecordStore, name: str
) -> None:
    generation = _warm(store, name)
    place.proxy.refuse(True)
    try:
        place.proxy.cut_all()
        for call in (
            lambda: store.get(name),
            lambda: store.replace(name, b"2", generation),
            lambda: store.create(name + "x", b"2"),
            lambda: store.delete(name, generation),
        ):
            with pytest.raises(tm.Unavailable, match="gave no answer within"):
                call()
        assert place.proxy.refused > 4
    finally:
        place.proxy.refuse(False)
    assert store.replace(name, b"2", generation) is not None


def test_what_was_confirmed_survives_a_kill_of_the_server(place: Place, name: str) -> None:
    with closing(_direct(place, name)) as store:
        generation = _warm(store, name)
        place.server.kill()
        starting = threading.Timer(0.2, place.server.start)
        starting.start()
        # Calls wait for the server, since a connection that is gone has sent nothing.
        second = store.replace(name, b"2", generation)
        starting.join()
        found = store.get(name)
        assert found is not None
        assert (found.data, found.generation) == (b"2", second)
        assert store.replace(name, b"late", generation) is None


def test_a_server_that_is_paused_leaves_a_write_unknown_which_may_come_later(
    place: Place, name: str
) -> None:
    with (
        closing(open_records(place.url(name, _TIMEOUT_S, through_proxy=False))[0]) as store,
        closing(_direct(place, name)) as looking,
    ):
        generation = _warm(store, name)
        with place.server.paused():
            with pytest.raises(tm.OutcomeUnknown):
                store.replace(name, b"late", generation)
            with pytest.raises(tm.Unavailable):
                store.get(name)
        # Whether it comes or not, of two writes to one generation only one counts.
        other = looking.replace(name, b"other", generation)
        found = looking.get(name)
        assert found is not None
        assert found.data == (b"late" if other is None else b"other")


@pytest.mark.parametrize("scheme", ["redis", "mysql", "etcd", "aerospike"])
def test_a_server_that_is_not_there_is_unavailable(scheme: str) -> None:
    home = "shop/" if scheme in ("mysql", "aerospike") else ""
    url = f"{scheme}://app:hush@127.0.0.1:1/{home}alerts?timeout_s=0.1"
    with pytest.raises(tm.Unavailable, match=r"127\.0\.0\.1:1") as caught:
        open_records(url)[0].get("alerts:ring")
    assert "hush" not in str(caught.value)


def test_who_gives_up_on_a_server_that_refuses_says_why_it_did() -> None:
    """And not that there was no time for the last attempt, as over a network there never is."""

    def refuse(_: bytes) -> bytes:
        time.sleep(0.005)
        return b"-ERR max number of clients reached\r\n"

    with (
        answering(refuse) as port,
        closing(open_records(f"redis://127.0.0.1:{port}/alerts?timeout_s=1")[0]) as store,
        pytest.raises(tm.Unavailable, match=r"within 1 s: .* max number of clients"),
    ):
        store.get("alerts:ring")


@pytest.mark.parametrize(
    ("scheme", "begins"), [("redis", b"+"), ("etcd", b"HTTP/1.1 200 OK\r\nX-Words: ")]
)
def test_a_server_whose_answer_never_ends_is_given_up_in_time(scheme: str, begins: bytes) -> None:
    def answer() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return  # It is over.
            with closing(client), suppress(OSError):
                client.sendall(begins)
                while True:
                    time.sleep(0.05)
                    client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=answer)
        server.start()
        began_s = time.monotonic()
        port = listener.getsockname()[1]
        with (
            pytest.raises(tm.Unavailable, match="gave no answer within"),
            closing(open_records(f"{scheme}://127.0.0.1:{port}/alerts?timeout_s=0.3")[0]) as store,
        ):
            store.get("alerts:ring")
        assert time.monotonic() - began_s < 10
        listener.shutdown(socket.SHUT_RDWR)
    server.join()


def test_every_server_is_in_the_suite() -> None:
    assert {*SERVERS} - {"aerospike"} == {*_SPEECH}
