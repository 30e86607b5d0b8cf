"""Redis INCRBY by pipelines, with the append-only file synced every second."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import redis

from tests.services.redis import Redis

_PER_PIPELINE = 1_000


class RedisCounters:
    """A server of its own; `names` are counted one after the other, again and again."""

    name = "Redis INCRBY, pipelined"

    def __init__(self, folder: Path, names: list[str], updates: int) -> None:
        folder.mkdir(parents=True)
        # Ours has updates on disk within 100 ms; the nearest that Redis offers is a second.
        self._server = Redis(folder, "--appendfsync", "everysec")
        self._server.start()
        self._client: Any = redis.Redis.from_url(self._server.url)
        self._names = names
        self._updates = updates

    def turn(self) -> dict[str, float]:
        start = time.perf_counter()
        self.count(self._names, self._updates)
        return {"update": (time.perf_counter() - start) / self._updates}

    def count(self, names: list[str], updates: int) -> None:
        for first in range(0, updates, _PER_PIPELINE):
            pipeline = self._client.pipeline(transaction=False)
            for number in range(first, min(first + _PER_PIPELINE, updates)):
                pipeline.incrby(names[number % len(names)], 1)
            pipeline.execute()

    def bytes_of(self, names: list[str], updates: int) -> int:
        """What goes over the wire to the server for so many updates."""
        before = int(self._client.info("stats")["total_net_input_bytes"])
        self.count(names, updates)
        return int(self._client.info("stats")["total_net_input_bytes"]) - before

    def close(self) -> None:
        self._client.close()
        self._server.kill()
