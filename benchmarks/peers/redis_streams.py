"""Redis Streams with the append-only file synced always: pipelines of XADD, XREAD by count."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from shutil import which
from typing import Any

import redis

from tests.services.mariadb import free_port


class RedisStreams:
    """A server of its own; each turn has a fresh stream."""

    name = "Redis Streams"

    def __init__(self, folder: Path) -> None:
        program = which("redis-server")
        if program is None:
            raise RuntimeError("redis-server is not installed: make services")
        folder.mkdir(parents=True)
        port = free_port()
        options = {
            "port": port,
            "bind": "127.0.0.1",
            "dir": folder,
            "appendonly": "yes",
            "appendfsync": "always",
            "save": "",
        }
        flags = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        self._server = subprocess.Popen([program, *flags], stdout=subprocess.DEVNULL)
        self._client = redis.Redis(port=port)
        deadline = time.monotonic() + 30
        while True:
            try:
                self._client.ping()
                break
            except redis.ConnectionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._turns = 0

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]:
        self._turns += 1
        stream = f"stream-{self._turns}"
        start = time.perf_counter()
        for _ in range(batches):
            pipeline = self._client.pipeline(transaction=False)
            for value in batch:
                pipeline.xadd(stream, {"v": value})
            pipeline.execute()
        middle = time.perf_counter()
        last: bytes | str = "0"
        found = 0
        while found < batches * len(batch):
            answer: Any = self._client.xread({stream: last}, count=10 * len(batch))
            ((_, entries),) = answer
            last = entries[-1][0]
            found += len(entries)
        end = time.perf_counter()
        self._client.delete(stream)
        return {"write": (middle - start) / found, "read": (end - middle) / found}

    def close(self) -> None:
        self._client.close()
        self._server.kill()
        self._server.wait()
