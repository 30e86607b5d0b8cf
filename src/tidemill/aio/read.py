"""A read transaction for asyncio."""

from __future__ import annotations

from types import TracebackType

from tidemill.aio.consuming_end import ConsumingEnd
from tidemill.batch import Batch
from tidemill.errors import Closed, ReadInProgress
from tidemill.files.queue import read as files
from tidemill.files.queue.consuming_end import KeyMax


class Read:
    """Made by `read()`: leaving its block pops the items, unless it raises or is cancelled.

    >>> import asyncio, tempfile, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...         await queue.push([(1, b"a"), (2, b"b")])
    ...         async with queue.read(1) as read:
    ...             print(read.batch.rows())
    ...         async with queue.read(1) as read:
    ...             read.keep()
    ...         return len(queue)
    >>> asyncio.run(main())
    [(1, b'a')]
    1
    """

    def __init__(self, end: ConsumingEnd, n: int, key_max: KeyMax, wait_s: float | None) -> None:
        self._end = end
        self._n = n
        self._key_max = key_max
        self._wait_s = wait_s
        self._read: files.Read | None = None

    @property
    def batch(self) -> Batch:
        """The items that leaving the block will pop."""
        return self._entered().batch

    async def push(self, data: object, *, key: str | None = None) -> int:
        """Push items when the block is left, in one operation with the pop; returns how many.

        If the block raises, they are not pushed; `keep` pops nothing, but pushes them.
        """
        read = self._entered()
        return await self._end._around.run(lambda: read.push(data, key=key))

    def keep(self) -> None:
        """Pop nothing when the block is left."""
        self._entered().keep()

    async def __aenter__(self) -> Read:
        if self._read is not None:
            raise ReadInProgress("this read is open already; leave its block first")
        opened = await self._end._waiting(self._open, self._n, self._key_max, self._wait_s)
        self._read = opened.read
        return self

    def _open(self, limit: int | None) -> _Opened:
        return _Opened(self._end._end.read(self._n, key_max=limit).__enter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        read, self._read = self._entered(), None
        if kind is not None:
            # Nothing is written, so that there is nothing to wait for.
            read.__exit__(kind, error, trace)
            return
        try:
            await self._end._in_turn(lambda: read.__exit__(None, None, None))
        except BaseException as failure:
            # Cancelled before its turn: the items stay, and others may read. What a thread has
            # begun is over by now, and ends no second time.
            read.__exit__(type(failure), failure, failure.__traceback__)
            raise

    def _entered(self) -> files.Read:
        if self._read is None:
            raise Closed("a read has items only inside its `async with` block")
        return self._read


class _Opened:
    """A read that has begun, as long as what it found."""

    def __init__(self, read: files.Read) -> None:
        self.read = read

    def __len__(self) -> int:
        return len(self.read.batch)
