"""A ring on each store: entries put in and taken out, one at a time and a hundred at once.

Next to it the store's own way, on the same server and as durable: RPUSH and LPOP on Redis, a table
with `SELECT … FOR UPDATE SKIP LOCKED` on MariaDB, and on etcd, which has no queue, bare conditional
writes. None of these has what a ring adds: a bound, offsets, groups, the outcome of a call that is
in doubt.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import tidemill as tm
from benchmarks.peers import is_installed
from benchmarks.progress import say
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import VALUE_BYTES, Settings
from tests.services.etcd import Etcd
from tests.services.mariadb import MariaDB
from tests.services.redis import Redis
from tests.services.server import Server

_TOGETHER = 100
_CAPACITY = 10_000
_VALUE = bytes(VALUE_BYTES)


class WorkList(Protocol):
    """What is measured: entries go in and come out."""

    def put(self, values: Sequence[bytes]) -> None: ...

    def take(self, count: int) -> int:
        """Take so many; returns how many there were."""

    def close(self) -> None: ...


class Peer(NamedTuple):
    """The store's own way."""

    name: str
    make: Callable[[], WorkList]


class RingList:
    """Ours."""

    def __init__(self, url: str) -> None:
        self._ring = tm.Ring(url, capacity=_CAPACITY)

    def put(self, values: Sequence[bytes]) -> None:
        self._ring.enqueue_many(values)

    def take(self, count: int) -> int:
        return len(self._ring.dequeue_many(count))

    def close(self) -> None:
        self._ring.close()


class _Turns:
    """Puts entries in and takes them out, so many at once."""

    def __init__(self, name: str, work: WorkList, together: int, times: int) -> None:
        self.name = name
        self._work = work
        self._together = together
        self._times = times

    def turn(self) -> dict[str, float]:
        values = [_VALUE] * self._together
        entries = self._together * self._times
        start = time.perf_counter()
        for _ in range(self._times):
            self._work.put(values)
        middle = time.perf_counter()
        taken = sum(self._work.take(self._together) for _ in range(self._times))
        end = time.perf_counter()
        if taken != entries:
            raise RuntimeError(f"{self.name} gave back {taken} of {entries} entries")
        return {"put": (middle - start) / entries, "take": (end - middle) / entries}

    def close(self) -> None:
        self._work.close()


def run(settings: Settings) -> list[Result]:
    results = _measure(settings, "memory", "memory:bench-{}", None)
    with tempfile.TemporaryDirectory(dir=settings.folder) as scratch:
        for kind in (Redis, MariaDB, Etcd):
            store = "etcd" if kind is Etcd else kind.__name__
            if (reason := kind.missing()) is not None:
                results.append(Result(f"ring on {store}", None, "entries/s", note=reason))
                continue
            folder = Path(scratch, store)
            folder.mkdir()
            with kind(folder) as server:
                url, peer = _places(server)
                results += _measure(settings, store, url, peer)
    return results


def _places(server: Server) -> tuple[str, Peer | None]:
    """Where the ring is, with a place for its name; and the store's own way."""
    if isinstance(server, Redis):
        if not is_installed("redis"):
            say("Redis' own way is left out: its client redis is not installed")
            return server.url_of("{}"), None
        from benchmarks.peers.redis_list import RedisList

        return server.url_of("{}"), Peer(RedisList.name, lambda: RedisList(server.url))
    if isinstance(server, MariaDB):
        from benchmarks.peers.locked_rows import LockedRows

        server.execute("CREATE DATABASE bench")
        return server.url("bench", "{}"), Peer(LockedRows.name, lambda: LockedRows(server))
    if isinstance(server, Etcd):
        from benchmarks.peers.bare_records import BareRecords

        url = server.url_of("{}")
        return url, Peer(BareRecords.name, lambda: BareRecords(url))
    raise RuntimeError(f"no ring is kept on {server}")


def _measure(settings: Settings, store: str, url: str, peer: Peer | None) -> list[Result]:
    results = []
    for together in (1, _TOGETHER):
        times = 20 if settings.quick else 500 // (1 if together == 1 else 10)
        ours = RingList(url.format(f"ring-{together}"))
        contestants: list[Contestant] = [_Turns("ring", ours, together, times)]
        if peer is not None:
            contestants.append(_Turns(peer.name, peer.make(), together, times))
        medians = interleave(f"ring on {store}", contestants, settings.rounds)
        how = "one at a time" if together == 1 else f"{together} at once"
        results += [
            Result(
                f"ring on {store}: {verb}, {how}",
                1 / medians["ring"][metric],
                "entries/s",
                None if peer is None else 1 / medians[peer.name][metric],
                "" if peer is None else peer.name,
                conditions={"operation": f"entries of {VALUE_BYTES} bytes, one client"},
            )
            for metric, verb in (("put", "put in"), ("take", "take out"))
        ]
    return results
