"""A group of a ring for asyncio."""

from __future__ import annotations

from tidemill.aio.ring_end import RingEnd
from tidemill.aio.threads import Threads
from tidemill.records import group as plain


class Group(RingEnd):
    """A consuming end with a head of its own.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Ring("memory:doc-aio-group", capacity=10) as ring:
    ...         audit = await ring.group("audit")
    ...         await ring.enqueue(b"one")
    ...         return (await audit.dequeue()).value, (await ring.dequeue()).value
    >>> asyncio.run(main())
    (b'one', b'one')
    """

    def __init__(self, group: plain.Group, threads: Threads) -> None:
        self._group = group
        self._threads = threads

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._group.name

    async def remove(self) -> None:
        """End the group: nothing waits for it any more. The last one cannot be removed."""
        await self._run(self._group.remove)

    def __repr__(self) -> str:
        return repr(self._group).replace("<Group", "<aio.Group", 1)

    def _end(self) -> plain.Group:
        return self._group

    def _pool(self) -> Threads:
        return self._threads
