"""A publisher for asyncio: sends that are awaited together are written together."""

from __future__ import annotations

import asyncio

from tidemill.aio.cancellation import see_through, settle
from tidemill.aio.threads import Threads
from tidemill.closing import AsyncClosing
from tidemill.files.queue.receipt import Receipt
from tidemill.log import publisher as plain

_ROWS_IN_LOOP = 1_000  # more are brought into columns by a thread, so that the loop goes on


class Publisher(AsyncClosing):
    """The twin of `tm.Publisher`; made by `tm.aio.Log.publisher()`.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Log("memory:doc-aio-publisher") as log:
    ...         out = await log.publisher()
    ...         receipts = await asyncio.gather(*[out.send(b"x") for _ in range(100)])
    ...         return sorted(receipt.first for receipt in receipts) == list(range(1, 101))
    >>> asyncio.run(main())
    True
    """

    def __init__(self, publisher: plain.Publisher, threads: Threads) -> None:
        self._publisher = publisher
        self._threads = threads
        self._turns = asyncio.Lock()

    @property
    def epoch(self) -> int:
        """The number by which a newer publisher is told from an older one."""
        return self._publisher.epoch

    @property
    def last_number(self) -> int | None:
        """The last number of this producer that is published; None if there is none."""
        return self._publisher.last_number

    async def send(
        self, rows: object, *, number: int | None = None, digest: bytes = b""
    ) -> Receipt:
        """Write rows, and return once they are durable and readable.

        Holds no thread while it waits. Cancelled before the rows are on their way, it has written
        nothing; afterwards it sees them through. A numbered send is always seen through.
        """
        await settle()
        publisher = self._publisher
        # One at a time, in the order of the calls: none passes another that a thread works on.
        async with self._turns:
            if isinstance(rows, (bytes, dict)) or (
                isinstance(rows, list) and len(rows) <= _ROWS_IN_LOOP
            ):
                send = publisher._prepare(rows, number, digest)
            else:
                send = await self._threads.run(publisher._prepare, rows, number, digest)
            if publisher._line.has_room(send):
                future = publisher._start(send)
            else:
                future = await self._threads.run(publisher._start, send)
        return await see_through(
            asyncio.wrap_future(future), lambda: publisher._line.withdraw(send)
        )

    def send_soon(
        self, rows: object, *, number: int | None = None, digest: bytes = b""
    ) -> asyncio.Task[Receipt]:
        """Have rows written, and return a task of the receipt at once."""
        return asyncio.ensure_future(self.send(rows, number=number, digest=digest))

    async def flush(self) -> None:
        """Return once everything that is on its way is written, or has failed."""
        await settle()
        await self._threads.run(self._publisher.flush)

    async def close(self) -> None:
        """Write what is on its way, and let another publish; twice does no harm."""
        await see_through(self._threads.begin(self._publisher.close), lambda: False)

    def __repr__(self) -> str:
        return repr(self._publisher).replace("<", "<aio.", 1)
