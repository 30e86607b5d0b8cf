"""A receiver for asyncio: waits for rows without a thread of its own."""

from __future__ import annotations

import asyncio
from types import TracebackType

from tidemill.aio.calling import call_in
from tidemill.aio.cancellation import see_through, settle
from tidemill.aio.threads import Threads
from tidemill.clock import wait_seconds
from tidemill.closing import AsyncClosing
from tidemill.errors import Closed, TidemillError
from tidemill.log import receiver as plain
from tidemill.log.receiver import Received


class Receiver(AsyncClosing):
    """The twin of `tm.Receiver`; made by `tm.aio.Log.receiver()`. Acks wait for nothing, so that
    they are not awaited.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Log("memory:doc-aio-receiver") as log:
    ...         await (await log.publisher()).send([b"a", b"b"])
    ...         receiver = await log.receiver("billing")
    ...         batch = await receiver.receive()
    ...         receiver.ack(1)
    ...         await receiver.flush()
    ...         return batch.rows(), receiver.pointer, await receiver.receive(wait_s=0)
    >>> asyncio.run(main())
    ([b'a', b'b'], 1, None)
    """

    def __init__(self, receiver: plain.Receiver, threads: Threads) -> None:
        self._receiver = receiver
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        receiver.listen(self._hear)

    @property
    def consumer(self) -> str:
        """The name of the consumer."""
        return self._receiver.consumer

    @property
    def pointer(self) -> int:
        """All rows up to this number are acked."""
        return self._receiver.pointer

    async def lag(self) -> int:
        """How many rows there are behind the pointer."""
        return await self._threads.run(lambda: self._receiver.lag)

    async def receive(self, wait_s: float | None = None) -> Received | None:
        """The next rows; None if there are none within `wait_s` seconds, or ever."""
        await settle()
        deadline_s = None if wait_s is None else self._loop.time() + wait_seconds(wait_s)
        look = self._receiver.ask()
        while True:
            self._news.clear()
            batch, has_more, has_looked = self._receiver.poll(look)
            if batch is not None or not has_more:
                return batch
            left_s = None if deadline_s is None else deadline_s - self._loop.time()
            if left_s is not None and left_s <= 0:
                if has_looked:
                    return None
                left_s = None
            try:
                await asyncio.wait_for(self._news.wait(), left_s)
            except TimeoutError:
                continue

    def __aiter__(self) -> Receiver:
        return self

    async def __anext__(self) -> Received:
        try:
            batch = await self.receive()
        except Closed:
            raise StopAsyncIteration from None
        if batch is None:
            await self.flush()
            raise StopAsyncIteration
        return batch

    def ack(self, seq: int, last: int | None = None) -> None:
        """Row `seq` is done, or all rows from `seq` to `last`; in any order."""
        self._receiver.ack(seq, last)

    async def flush(self) -> None:
        """Return once the pointer is stored."""
        await settle()
        await self._threads.run(self._receiver.flush)

    async def close(self) -> None:
        """Store what was acked, and end; twice does no harm."""
        await see_through(self._threads.begin(self._receiver.close), lambda: False)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except TidemillError:
            if error is None:
                raise

    def __repr__(self) -> str:
        return repr(self._receiver).replace("<", "<aio.", 1)

    def _hear(self) -> None:
        """Called by threads of the receiver's, under its lock."""
        call_in(self._loop, self._news.set)
