"""NATS JetStream with a file store that syncs always: publishes awaited together, fetches."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from tests.services.mariadb import free_port

_FETCH = 1_000


class JetStream:
    """A server of its own; each turn has a fresh stream."""

    name = "NATS JetStream"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._port = free_port()
        settings = folder / "nats.conf"
        settings.write_text(
            f'listen: "127.0.0.1:{self._port}"\n'
            f'jetstream {{ store_dir: "{folder}", sync_interval: always }}\n'
        )
        program = Path(sys.executable).with_name("nats-server")
        self._server = subprocess.Popen(
            [str(program), "-c", str(settings)], stderr=subprocess.DEVNULL
        )
        self._turns = 0

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]:
        self._turns += 1
        return asyncio.run(self._measure(f"turn{self._turns}", batches, batch))

    async def _measure(self, stream: str, batches: int, batch: list[bytes]) -> dict[str, float]:
        client = await nats.connect(f"nats://127.0.0.1:{self._port}")
        context = client.jetstream(publish_async_max_pending=len(batch))
        await context.add_stream(name=stream, subjects=[stream])
        start = time.perf_counter()
        for _ in range(batches):
            waiting = [await context.publish_async(stream, value) for value in batch]
            await asyncio.gather(*waiting)
        middle = time.perf_counter()
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        reader = await context.pull_subscribe(stream, durable="reader", config=config)
        found = 0
        while found < batches * len(batch):
            found += len(await reader.fetch(_FETCH))
        end = time.perf_counter()
        await context.delete_stream(stream)
        await client.close()
        return {"write": (middle - start) / found, "read": (end - middle) / found}

    def close(self) -> None:
        self._server.kill()
        self._server.wait()
