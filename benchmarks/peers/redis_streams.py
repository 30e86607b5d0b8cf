"""Redis Streams with the append-only file synced always: XADD by pipeline or script, then XREAD.

A pipeline is the usual way; a script adds the whole batch by one command, which spares client and
server most of the work.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import redis

from tests.services.redis import Redis

_ADD_ALL = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], '*', 'v', ARGV[i]) end"


class RedisStreams:
    """A server of its own; each turn has a fresh stream."""

    def __init__(self, folder: Path, *, by_script: bool) -> None:
        self.name = f"Redis Streams, {'by a script' if by_script else 'pipelined'}"
        folder.mkdir(parents=True)
        self._server = Redis(folder)
        self._server.start()
        # Its calls are typed for both of its clients, so that their results are of no known type.
        self._client: Any = redis.Redis.from_url(self._server.url)
        self._script = self._client.register_script(_ADD_ALL) if by_script else None
        self._turns = 0

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]:
        self._turns += 1
        stream = f"stream-{self._turns}"
        start = time.perf_counter()
        for _ in range(batches):
            self._add(stream, batch)
        middle = time.perf_counter()
        last: bytes | str = "0"
        found: list[bytes] = []
        while len(found) < batches * len(batch):
            answer = self._client.xread({stream: last}, count=10 * len(batch))
            ((_, entries),) = answer.items() if isinstance(answer, dict) else answer
            if isinstance(answer, dict):
                (entries,) = entries  # The newer protocol has a list of lists.
            found += [fields[b"v"] for _, fields in entries]
            last = entries[-1][0]
        end = time.perf_counter()
        self._client.delete(stream)
        if found != batch * batches:
            raise RuntimeError(f"{self.name} gave back other messages than were added")
        return {"write": (middle - start) / len(found), "read": (end - middle) / len(found)}

    def close(self) -> None:
        self._client.close()
        self._server.kill()

    def _add(self, stream: str, batch: list[bytes]) -> None:
        if self._script is not None:
            self._script(keys=[stream], args=batch)
            return
        pipeline = self._client.pipeline(transaction=False)
        for value in batch:
            pipeline.xadd(stream, {"v": value})
        pipeline.execute()
