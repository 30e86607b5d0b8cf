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
from benchmarks.progress import say
from benchmarks.result import Result
from benchmarks.rounds import interleave
from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES, Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB
from tests.services.nats import Nats
from tests.services.redis import Redis


class _Measured(Protocol):
    name: str

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]: ...

    def close(self) -> None: ...


_TURN_S_MAX = 10.0  # about


class _Turns:
    """Lets a server take turns; a slow one is given fewer batches, so that a run ends."""

    def __init__(self, measured: _Measured, batches: int) -> None:
        self._measured = measured
        self._batch = [b"%0*d" % (VALUE_BYTES, number) for number in range(ITEMS_PER_BATCH)]
        self.name = measured.name
        # The second of two, since the first one also warms up.
        for _ in range(2):
            item_s = sum(measured.measure(1, self._batch).values())
        fitting = int(_TURN_S_MAX / (item_s * ITEMS_PER_BATCH))
        self.batches = min(batches, max(1, fitting))

    def turn(self) -> dict[str, float]:
        return self._measured.measure(self.batches, self._batch)

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
    if (reason := MariaDB.missing()) is not None:
        return [Result(what, None, "messages/s", note=reason)]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder, server(settings) as started:
        measured: list[_Measured] = [_Ours(started)]
        for kind, client, open_peers in (
            (Redis, "redis", _open_redis),
            (Nats, "nats", _open_nats),
        ):
            reason = kind.missing()
            if reason is None and not is_installed(client):
                reason = f"its client {client} is not installed"
            if reason is None:
                measured += open_peers(Path(folder))
            else:
                say(f"{client} is left out: {reason}")
                results.append(Result(what, None, "messages/s", peer_name=client, note=reason))
        contestants = [_Turns(one, batches) for one in measured]
        conditions = {f"{one.name} is given": f"{one.batches} batches" for one in contestants}
        medians = interleave(what, contestants, settings.rounds)
    ours = medians.pop("tidemill")
    return results + [
        Result(
            f"{what}: {metric}",
            1 / ours[metric],
            "messages/s",
            1 / peer[metric],
            name,
            conditions=conditions,
        )
        for metric in ("write", "read")
        for name, peer in sorted(medians.items(), key=lambda item: item[1][metric])
    ]


# Imported when it is clear that they are installed.


def _open_redis(folder: Path) -> list[_Measured]:
    from benchmarks.peers.redis_streams import RedisStreams

    return [
        RedisStreams(folder / f"redis-{by_script}", by_script=by_script)
        for by_script in (False, True)
    ]


def _open_nats(folder: Path) -> list[_Measured]:
    from benchmarks.peers.jetstream import JetStream

    return [
        JetStream(folder / f"nats-{is_atomic}", is_atomic=is_atomic) for is_atomic in (False, True)
    ]
