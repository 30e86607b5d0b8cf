"""The priority queue in a folder, for asyncio."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Self

import pyarrow as pa

from tidemill.aio.cancellation import see_through, settle
from tidemill.aio.consumer import Consumer
from tidemill.aio.consuming_end import ConsumingEnd, Surroundings
from tidemill.aio.threads import Threads
from tidemill.clock import Clock
from tidemill.closing import AsyncClosing
from tidemill.errors import Closed
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.folder.folder_options import CorruptionMode, SyncMode
from tidemill.files.queue import priority_queue as files
from tidemill.files.queue.consumer import Start
from tidemill.files.queue.priority_queue import Stats
from tidemill.files.queue.pushes import PushRequest
from tidemill.files.queue.receipt import Receipt
from tidemill.files.state.bucket import BucketFunction
from tidemill.files.upkeep.room import WhenFull
from tidemill.limits import AIO_THREADS_MAX, BUCKETS_OPEN_MAX


class PriorityQueue(ConsumingEnd, AsyncClosing):
    """`tm.PriorityQueue` for asyncio: the same queue, the same options, the same face.

    `async with` opens and closes it; so do `await queue.open()` and `await queue.close()`. All its
    tasks must run in one event loop. Disk work happens in a few threads of the queue's own; pushes
    that are awaited at the same time share their commit.

    A call that raises `asyncio.CancelledError` has done nothing. Once its work has begun, it is
    seen through and returned, and the cancellation comes at the task's next await: what a pop took
    is never lost on the way.

    >>> import asyncio, tempfile, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...         await queue.push([(3, b"c"), (1, b"a")])
    ...         return (await queue.pop(10)).rows()
    >>> asyncio.run(main())
    [(1, b'a'), (3, b'c')]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bucket: BucketFunction | None = None,
        schema: pa.Schema | None = None,
        sync: SyncMode = "full",
        on_corruption: CorruptionMode = "abort",
        read_only: bool = False,
        buckets_open_max: int = BUCKETS_OPEN_MAX,
        bytes_max: int | None = None,
        when_full: WhenFull = "refuse",
        lock_wait_s: float = 0.0,
        file_system: FileSystem | None = None,
        clock: Clock | None = None,
        maintain_in_background: bool = True,
        segment_bytes: int | None = None,
    ) -> None:
        self._given_path = path
        self._open_queue = lambda: files.PriorityQueue(
            path,
            bucket=bucket,
            schema=schema,
            sync=sync,
            on_corruption=on_corruption,
            read_only=read_only,
            buckets_open_max=buckets_open_max,
            bytes_max=bytes_max,
            when_full=when_full,
            lock_wait_s=lock_wait_s,
            file_system=file_system,
            clock=clock,
            maintain_in_background=maintain_in_background,
            segment_bytes=segment_bytes,
        )
        self._threads: Threads | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> Self:
        """Open the queue, and make its folder if it is not there; `async with` does the same.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     queue = await tm.aio.PriorityQueue(tempfile.mkdtemp()).open()
        ...     await queue.push([b"a"])
        ...     await queue.close()
        >>> asyncio.run(main())
        """
        if self._threads is not None:
            raise Closed(f"{self!r} was opened before; make another handle")
        self._threads = Threads(AIO_THREADS_MAX)
        try:
            queue = await self._threads.run_waiting(self._open_queue)
        except BaseException:
            threads, self._threads = self._threads, None
            await threads.end()
            raise
        self._attached = queue, Surroundings(queue._core, self._threads)
        return self

    @property
    def path(self) -> Path:
        return self._queue.path

    @property
    def schema(self) -> pa.Schema:
        """The newest version of the payload's schema."""
        return self._queue.schema

    async def push(self, data: object, *, key: str | None = None) -> Receipt:
        """Add items for every fork: all of them, or none if it raises.

        `data` and `key` are those of `tm.PriorityQueue.push`; leave the data as it is until the
        call returns. Pushes that are awaited at the same time share a group commit, and have no
        order among them.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await asyncio.gather(*[queue.push([(n, b"")]) for n in range(100)])
        ...         return len(queue)
        >>> asyncio.run(main())
        100
        """
        around = self._around
        await settle()
        around.check()
        if self._closing is not None:
            raise Closed(f"{self!r} is being closed; open it again to use it")
        return await around.rounds.push(PushRequest(data, key))

    async def forks(self) -> list[str]:
        """The names of all forks, in the order they were made.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.fork("audit")
        ...         return await queue.forks()
        >>> asyncio.run(main())
        ['audit']
        """
        return await self._around.run(self._queue.forks)

    async def sync(self) -> None:
        """Make everything pushed and popped so far last, whatever the sync mode.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp(), sync="none") as queue:
        ...         await queue.push([b"a"])
        ...         await queue.sync()
        >>> asyncio.run(main())
        """
        await self._around.run(self._queue.sync)

    async def consumer(self, name: str, *, start: Start = "latest") -> Consumer:
        """A reader of every item that is pushed, in the order of arrival, whose pointer lasts.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         async with await queue.consumer("billing") as billing:
        ...             await queue.push([(2, b"b"), (1, b"a")])
        ...             return (await billing.read(1)).rows()
        >>> asyncio.run(main())
        [(1, b'a')]
        """
        around = self._around
        queue = self._queue
        return Consumer(await around.run(lambda: queue.consumer(name, start=start)), around)

    async def consumers(self) -> dict[str, int]:
        """The pointers of all consumers, by name.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         return await queue.consumers()
        >>> asyncio.run(main())
        {}
        """
        return await self._around.run(self._queue.consumers)

    async def stats(self) -> Stats:
        """A look at the queue.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         return (await queue.stats()).segments
        >>> asyncio.run(main())
        1
        """
        return await self._around.run(self._queue.stats)

    async def close(self) -> None:
        """Finish what is under way, let the folder go and end the threads; waits raise `tm.Closed`.

        Closing twice does no harm.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     queue = await tm.aio.PriorityQueue(tempfile.mkdtemp()).open()
        ...     await queue.close()
        >>> asyncio.run(main())
        """
        if self._attached is None:
            return
        if not self._around.loop.is_closed():
            self._around.check_loop()
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await see_through(self._closing, lambda: False)

    async def _close(self) -> None:
        around = self._around
        # What a loop that has ended left behind will never be taken up.
        if not around.loop.is_closed():
            await around.rounds.drain()
        await around.threads.begin(self._queue.close)
        await around.threads.end()

    @property
    def _queue(self) -> files.PriorityQueue:
        end = self._end
        assert isinstance(end, files.PriorityQueue)
        return end

    async def __aenter__(self) -> Self:
        return await self.open()

    def __repr__(self) -> str:
        if self._attached is None:
            return f"<aio.PriorityQueue {os.fspath(self._given_path)!r}, not open>"
        return repr(self._queue).replace("<PriorityQueue", "<aio.PriorityQueue", 1)
