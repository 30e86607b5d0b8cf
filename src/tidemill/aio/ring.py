"""A ring for asyncio: what waits is awaited."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from tidemill.aio.group import Group
from tidemill.aio.ring_end import Attempts, RingEnd
from tidemill.aio.threads import Threads
from tidemill.aio.twin import Twin
from tidemill.errors import QueueFull
from tidemill.records import ring as plain
from tidemill.records.protocol.reading import Outcome
from tidemill.records.protocol.values import Entry, Value, several


class Ring(Twin[plain.Ring], RingEnd):
    """The twin of `tm.Ring`: the same options and methods, awaited.

    A call that is cancelled is withdrawn if it has not begun; otherwise it is seen through, and the
    cancellation strikes at the next await.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Ring("memory:doc-aio-ring", capacity=10) as ring:
    ...         await ring.enqueue_many([b"one", {"two": 2}])
    ...         return await ring.dequeue(wait_s=5), (await ring.info()).length
    >>> asyncio.run(main())
    (Entry(offset=0, value=b'one'), 1)
    """

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(lambda: plain.Ring(url, **options))

    @property
    def name(self) -> str:
        """The name of the ring in its store."""
        return self._end().name

    @property
    def capacity(self) -> int:
        """How many entries the ring holds."""
        return self._end().capacity

    async def enqueue(
        self,
        value: Value,
        *,
        overwrite: bool = False,
        wait_s: float | None = None,
        operation_id: str | None = None,
    ) -> int:
        """Put an entry in; returns its offset. While it waits for room the call holds no thread."""
        return await self.enqueue_many(
            [value], overwrite=overwrite, wait_s=wait_s, operation_id=operation_id
        )

    async def enqueue_many(
        self,
        values: Iterable[Value],
        *,
        overwrite: bool = False,
        wait_s: float | None = None,
        operation_id: str | None = None,
    ) -> int:
        """Put entries in, all or none, under one lock; returns the offset of the first."""
        ring = self._end()
        given = several(values)
        full: QueueFull | None = None
        async for _ in Attempts(wait_s):
            try:
                return await self._run(
                    ring.enqueue_many, given, overwrite=overwrite, operation_id=operation_id
                )
            except QueueFull as error:
                full = error
        raise full or QueueFull(f"{self!r} is full")

    async def get(self, offset: int) -> Entry | None:
        """The entry at an offset, without a lock; None if it is not in the ring."""
        return await self._run(self._end().get, offset)

    async def get_many(self, first: int, count: int) -> list[Entry]:
        """Those of `count` entries from an offset on that are in the ring, without a lock."""
        return await self._run(self._end().get_many, first, count)

    async def info(self) -> plain.RingInfo:
        """How full the ring is, and what it is made of, without a lock."""
        return await self._run(self._end().info)

    async def outcome(self, operation_id: str) -> Outcome:
        """What became of an operation of any client: the last one that has this id."""
        return await self._run(self._end().outcome, operation_id)

    async def group(self, name: str, *, start: Literal["earliest", "latest"] = "earliest") -> Group:
        """A consuming end of its own, made if it is not there."""
        made = await self._run(self._end().group, name, start=start)
        return Group(made, self._pool())

    async def remove(self) -> None:
        """Remove the ring and all its entries from the store; the handle is closed."""
        await self._run(self._end().remove)

    @staticmethod
    async def remove_at(url: str, *, buffers: str | None = None) -> None:
        """Remove a ring without opening it; see `tm.Ring.remove_at`."""
        threads = Threads(1)
        try:
            await threads.run(plain.Ring.remove_at, url, buffers=buffers)
        finally:
            await threads.end()

    def __repr__(self) -> str:
        return f"<aio.Ring {str(self._handle.name)!r}>" if self._handle else "<aio.Ring>"

    def _end(self) -> plain.Ring:
        return self._opened()
