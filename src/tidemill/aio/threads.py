"""The threads of one queue: where the calls run that may wait for a disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tidemill.aio.cancellation import see_through

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded set of threads, made as they are needed."""

    def __init__(self, count_max: int) -> None:
        self._pool = ThreadPoolExecutor(count_max, thread_name_prefix="tidemill-aio")
        self._under_way: set[asyncio.Future[object]] = set()

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a blocking call; what cancelling does is told in `cancellation`."""
        work = self._pool.submit(call, *args, **options)
        return await see_through(self._watched(asyncio.wrap_future(work)), work.cancel)

    def begin(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> asyncio.Future[T]:
        """Run a blocking call that nobody can cancel."""
        return self._watched(asyncio.wrap_future(self._pool.submit(call, *args, **options)))

    async def end(self) -> None:
        """Wait for what is under way, and end the threads."""
        loop = asyncio.get_running_loop()
        while mine := [one for one in self._under_way if one.get_loop() is loop]:
            await asyncio.wait(mine)
        # All are idle, so that this waits for no more than their last instructions.
        self._pool.shutdown()

    def _watched(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        # A future of anything is a future of an object, as long as it is only waited for.
        watched: asyncio.Future[object] = future  # type: ignore[assignment]
        self._under_way.add(watched)
        watched.add_done_callback(self._under_way.discard)
        return future
