"""What the twins of plain handles share: a thread opens, uses and closes the handle for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, ParamSpec, Self, TypeVar

from tidemill.aio.cancellation import settle
from tidemill.aio.threads import Threads
from tidemill.closing import AsyncClosing, Closing
from tidemill.errors import Closed
from tidemill.limits import AIO_THREADS_MAX

H = TypeVar("H", bound=Closing)
P = ParamSpec("P")
T = TypeVar("T")


class Twin(AsyncClosing, Generic[H]):
    """Opened once, by `open` or `async with`; closed once, whoever is cancelled meanwhile."""

    def __init__(self, make: Callable[[], H]) -> None:
        self._make = make
        self._handle: H | None = None
        self._threads: Threads | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> Self:
        """Open it, and make what is not there; `async with` does the same.

        >>> import asyncio, tidemill as tm
        >>> async def main():
        ...     log = await tm.aio.Log("memory:doc-aio-open").open()
        ...     await log.close()
        >>> asyncio.run(main())
        """
        if self._threads is not None:
            raise Closed(f"{self!r} was opened before; make another handle")
        self._threads = Threads(AIO_THREADS_MAX)
        try:
            self._handle = await self._threads.run_waiting(self._make)
        except BaseException:
            threads, self._threads = self._threads, None
            await threads.end()
            raise
        return self

    async def close(self) -> None:
        """Finish what is under way, and let go; twice does no harm."""
        if self._threads is None or self._handle is None:
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(self._handle, self._threads))
        # Whoever is cancelled meanwhile does not leave it half closed.
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def _close(self, handle: H, threads: Threads) -> None:
        try:
            await threads.begin(handle.close)
        finally:
            await threads.end()

    def _opened(self) -> H:
        if self._handle is None:
            raise Closed(f"{self!r} is not open: use `async with`, or await open()")
        if self._closing is not None:
            raise Closed(f"{self!r} was closed; open it again to use it")
        return self._handle

    def _pool(self) -> Threads:
        if self._threads is None:
            raise Closed(f"{self!r} is not open: use `async with`, or await open()")
        return self._threads

    async def _run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        await settle()
        return await self._pool().run(call, *args, **options)
