"""A consumer for asyncio."""

from __future__ import annotations

from tidemill.aio.consuming_end import Surroundings
from tidemill.batch import Batch
from tidemill.closing import AsyncClosing
from tidemill.files.queue import consumer as files


class Consumer(AsyncClosing):
    """Reads items by arrival number, whatever the queue and its forks have popped.

    >>> import asyncio, tempfile, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...         billing = await queue.consumer("billing")
    ...         await queue.push([(1, b"a")])
    ...         batch = await billing.read(10)
    ...         await billing.ack(batch.last.seq)
    ...         return batch.rows(), billing.pointer
    >>> asyncio.run(main())
    ([(1, b'a')], 1)
    """

    def __init__(self, consumer: files.Consumer, around: Surroundings) -> None:
        self._consumer = consumer
        self._around = around

    @property
    def name(self) -> str:
        return self._consumer.name

    @property
    def pointer(self) -> int:
        """The arrival number up to which everything is done."""
        return self._consumer.pointer

    async def read(self, rows_max: int = 1_000) -> Batch:
        """The next items behind the pointer, in the order of arrival; the same ones again until
        they are acked.
        """
        return await self._around.run(lambda: self._consumer.read(rows_max))

    async def ack(self, seq: int) -> None:
        """Everything up to `seq` is done; a number below the pointer changes nothing."""
        await self._around.run(lambda: self._consumer.ack(seq))

    async def remove(self) -> None:
        """End the consumer for good; what only it held back is given back to the disk."""
        await self._around.run(self._consumer.remove)

    async def close(self) -> None:
        """Let another handle use the consumer; its pointer stays."""
        # Waits for nobody but a call of the same consumer.
        self._consumer.close()

    def __repr__(self) -> str:
        return repr(self._consumer).replace("<Consumer", "<aio.Consumer", 1)
