"""A consuming end of a ring for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from tidemill.aio.cancellation import settle
from tidemill.aio.threads import Threads
from tidemill.clock import wait_seconds
from tidemill.records import ring_end as plain
from tidemill.records.protocol.lock import PAUSE_S_MAX, PAUSE_S_MIN
from tidemill.records.protocol.values import Entry

P = ParamSpec("P")
T = TypeVar("T")


class RingEnd:
    """What a ring and its groups have in common: taking entries out."""

    async def dequeue(
        self, *, wait_s: float | None = None, operation_id: str | None = None
    ) -> Entry | None:
        """Take out the oldest entry; None if there is none, with `wait_s` for so long.

        While it waits for one the call holds no thread.
        """
        found = await self.dequeue_many(1, wait_s=wait_s, operation_id=operation_id)
        return found[0] if found else None

    async def dequeue_many(
        self, n: int, *, wait_s: float | None = None, operation_id: str | None = None
    ) -> list[Entry]:
        """Take out the `n` oldest entries, or as many as there are, under one lock."""
        end = self._end()
        async for _ in Attempts(wait_s):
            if found := await self._run(end.dequeue_many, n, operation_id=operation_id):
                return found
        return []

    def _end(self) -> plain.RingEnd:
        raise NotImplementedError

    def _pool(self) -> Threads:
        raise NotImplementedError

    async def _run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        await settle()
        return await self._pool().run(call, *args, **options)


class Attempts:
    """Turns at trying something, with pauses in between, until a time is over; at least one.

    >>> async def count():
    ...     return len([turn async for turn in Attempts(None)])
    >>> asyncio.run(count())
    1
    """

    def __init__(self, wait_s: float | None) -> None:
        self._wait_s = 0.0 if wait_s is None else wait_seconds(wait_s)
        self._pause_s = PAUSE_S_MIN
        self._deadline_s: float | None = None

    def __aiter__(self) -> Attempts:
        return self

    async def __anext__(self) -> None:
        now = asyncio.get_running_loop().time()
        if self._deadline_s is None:
            self._deadline_s = now + self._wait_s
            return
        left_s = self._deadline_s - now
        if left_s <= 0:
            raise StopAsyncIteration
        await asyncio.sleep(min(self._pause_s, left_s))
        self._pause_s = min(self._pause_s * 2, PAUSE_S_MAX)
