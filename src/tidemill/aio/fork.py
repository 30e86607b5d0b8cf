"""A fork for asyncio."""

from __future__ import annotations

from tidemill.aio.consuming_end import ConsumingEnd, Surroundings
from tidemill.files.queue import fork as files


class Fork(ConsumingEnd):
    """A consuming end of its own: it sees every push, and what it pops stays for the others.

    >>> import asyncio, tempfile, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...         audit = await queue.fork("audit")
    ...         await queue.push([(1, b"a")])
    ...         return (await audit.pop()).rows(), len(audit), len(queue)
    >>> asyncio.run(main())
    ([(1, b'a')], 0, 1)
    """

    def __init__(self, fork: files.Fork, around: Surroundings) -> None:
        self._fork = fork
        self._attached = fork, around
        self._name = fork.name

    @property
    def name(self) -> str:
        return self._fork.name

    async def remove(self) -> None:
        """End the fork; what only it had yet to consume is given back to the disk.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await (await queue.fork("audit")).remove()
        ...         return await queue.forks()
        >>> asyncio.run(main())
        []
        """
        await self._in_turn(self._fork.remove)

    def __repr__(self) -> str:
        return repr(self._fork).replace("<Fork", "<aio.Fork", 1)
