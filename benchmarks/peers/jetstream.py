"""NATS JetStream with a file store that syncs always: publishes awaited together, or atomic
batches, which the server syncs as one; fetches.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import nats
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, Header

from tests.services.nats import Nats

_FETCH = 1_000
_ATOMIC_MESSAGES_MAX = 1_000  # The server refuses more.
_ANSWER_S = 120.0


class JetStream:
    """A server of its own; each turn has a fresh stream."""

    def __init__(self, folder: Path, *, is_atomic: bool) -> None:
        self.name = f"NATS JetStream, {'in atomic batches' if is_atomic else 'in flight'}"
        self._is_atomic = is_atomic
        folder.mkdir(parents=True)
        self._server = Nats(folder)
        self._server.install()
        self._server.start()
        self._turns = 0

    def measure(self, batches: int, batch: list[bytes]) -> dict[str, float]:
        self._turns += 1
        return asyncio.run(self._measure(f"turn{self._turns}", batches, batch))

    async def _measure(self, stream: str, batches: int, batch: list[bytes]) -> dict[str, float]:
        client = await nats.connect(self._server.url)
        context = client.jetstream(timeout=_ANSWER_S, publish_async_max_pending=len(batch))
        await context.add_stream(
            name=stream, subjects=[stream], allow_atomic=True if self._is_atomic else None
        )
        start = time.perf_counter()
        for number in range(batches):
            if self._is_atomic:
                await _publish_atomically(client, context, stream, number, batch)
            else:
                waiting = [await context.publish_async(stream, value) for value in batch]
                await asyncio.gather(*waiting)
        middle = time.perf_counter()
        config = ConsumerConfig(ack_policy=AckPolicy.NONE)
        reader = await context.pull_subscribe(stream, durable="reader", config=config)
        found: list[bytes] = []
        while len(found) < batches * len(batch):
            found += [message.data for message in await reader.fetch(_FETCH)]
        end = time.perf_counter()
        await context.delete_stream(stream)
        await client.close()
        if found != batch * batches:
            raise RuntimeError(f"{self.name} gave back other messages than were published")
        return {"write": (middle - start) / len(found), "read": (end - middle) / len(found)}

    def close(self) -> None:
        self._server.kill()


async def _publish_atomically(
    client: Client, context: JetStreamContext, stream: str, number: int, batch: list[bytes]
) -> None:
    """As many batches as it takes, one after the other; the server answers to the last message of
    each, and refuses a batch of which it misses one.
    """
    for first in range(0, len(batch), _ATOMIC_MESSAGES_MAX):
        part = batch[first : first + _ATOMIC_MESSAGES_MAX]
        headers = {Header.BATCH_ID.value: f"{number}-{first}"}
        for position, value in enumerate(part[:-1], 1):
            headers[Header.BATCH_SEQUENCE.value] = str(position)
            await client.publish(stream, value, headers=headers)
        headers[Header.BATCH_SEQUENCE.value] = str(len(part))
        headers[Header.BATCH_COMMIT.value] = "1"
        await context.publish(stream, part[-1], timeout=_ANSWER_S, headers=headers)
