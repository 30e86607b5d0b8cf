"""The log on MariaDB against Redis Streams and NATS JetStream: over a socket, each commit synced.

Batches of 2,000 values of 40 bytes as Python objects, written one batch after another and read
back, by one client, batched as well as each client can.
"""

from __future__ import annotations

import tempfile
import time
from itertools import count
from pathlib import Path
from typing import Protocol

import tidemill as tm
from benchmarks.peers import is_installed
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES, Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB


class _Measured(Protocol):
    name: str

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]: ...

    def close(self) -> None: ...


class _Turns:
    """Lets a server take turns."""

    def __init__(self, measured: _Measured, batches: int) -> None:
        self._measured = measured
        self._batches = batches
        self._batch = [b"%0*d" % (VALUE_BYTES, number) for number in range(ITEMS_PER_BATCH)]
        self.name = measured.name

    def turn(self) -> dict[str, float]:
        return self._measured.measure(self._batches, self._batch)

    def close(self) -> None:
        self._measured.close()


class _Ours:
    name = "tidemill"

    def __init__(self, started: MariaDB) -> None:
        self._server = started
        self._turns = count()

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]:
        with tm.Log(self._server.url("bench", f"log{next(self._turns)}"), parallelism=1) as log:
            out = log.publisher()
            start = time.perf_counter()
            for _ in range(batches):
                out.send(batch)
            middle = time.perf_counter()
            found = 0
            for received in log.receiver("reader", follow=False):
                found += len(received.rows())
            end = time.perf_counter()
        if found != batches * len(batch):
            raise RuntimeError(f"{found} rows came back of {batches * len(batch)}")
        return {"write": (middle - start) / found, "read": (end - middle) / found}

    def close(self) -> None:
        pass


def run(settings: Settings) -> list[Result]:
    batches = 5 if settings.quick else 100
    what = f"batches of {ITEMS_PER_BATCH:,} Python objects over a socket, synced"
    if not (is_installed("redis") and is_installed("nats")):
        return [Result(what, None, "messages/s", note="redis and nats-py are not installed")]
    # Peers that only this workload needs.
    from benchmarks.peers.jetstream import JetStream
    from benchmarks.peers.redis_streams import RedisStreams

    with tempfile.TemporaryDirectory(dir=settings.folder) as folder, server(settings) as started:
        measured: list[_Measured] = [
            _Ours(started),
            RedisStreams(Path(folder) / "redis"),
            JetStream(Path(folder) / "nats"),
        ]
        contestants: list[Contestant] = [_Turns(one, batches) for one in measured]
        medians = interleave(what, contestants, settings.rounds)
    ours = medians.pop("tidemill")
    return [
        Result(f"{what}: {metric}", 1 / ours[metric], "messages/s", 1 / peer[metric], name)
        for name, peer in medians.items()
        for metric in ("write", "read")
    ]
