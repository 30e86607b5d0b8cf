"""The consuming end of a queue for asyncio: what the queue itself and each of its forks can do.

The work is done by the end of the same name in `files`, in a thread; here is only what an event
loop adds. A wait holds no thread. Only a few calls of one end go to threads at a time: enough for
pops to share a sync, and not so many that they sit in all threads waiting for one another's lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from tidemill.aio.arrivals import Arrivals
from tidemill.aio.cancellation import settle
from tidemill.aio.push_rounds import PushRounds
from tidemill.aio.threads import Threads
from tidemill.batch import Batch
from tidemill.clock import wait_seconds
from tidemill.errors import CallerError, Closed, InvalidInput
from tidemill.files.queue import consuming_end as files
from tidemill.files.queue.consuming_end import KeyMax
from tidemill.files.queue.due import look_in_s
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import AIO_CALLS_PER_END_MAX
from tidemill.numbers import whole_number

if TYPE_CHECKING:
    from tidemill.aio.fork import Fork
    from tidemill.aio.priority_queue import PriorityQueue
    from tidemill.aio.read import Read

T = TypeVar("T")
Found = TypeVar("Found", bound=Sized)

_FOREVER_S = float("inf")


class Surroundings:
    """What the ends of one open queue share."""

    def __init__(self, core: QueueCore, threads: Threads) -> None:
        self.loop = asyncio.get_running_loop()
        self.core = core
        self.threads = threads
        self.rounds = PushRounds(core, threads)
        self.arrivals = Arrivals(self.loop)
        core.view.watchers.append(self.arrivals.changed)
        self.turns: dict[str, asyncio.Semaphore] = {}  # by the name of the end

    def check(self) -> None:
        """Raise if the queue is closed, or was opened in another event loop."""
        self.core.view.check_alive()
        self.check_loop()

    def check_loop(self) -> None:
        if asyncio.get_running_loop() is not self.loop:
            raise CallerError(
                f"{self.core.view.path} was opened in another event loop; use it there, or open "
                "it anew after closing it"
            )

    async def run(self, call: Callable[[], T]) -> T:
        """Run a blocking call in a thread."""
        await settle()
        self.check()
        return await self.threads.run(call)


class ConsumingEnd:
    """Pops, peeks, reads and deletes; see `PriorityQueue` and `Fork`."""

    _attached: tuple[files.ConsumingEnd, Surroundings] | None = None
    _name = ""

    async def pop(
        self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None
    ) -> Batch:
        """Take the `n` items with the smallest keys; n < 0 takes all.

        `key_max` and `wait_s` are those of `tm.PriorityQueue.pop`. While it waits the call holds no
        thread, and cancelling it ends it at once, with nothing taken.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         popped = asyncio.create_task(queue.pop(2, wait_s=60))
        ...         await queue.push([(3, b"c"), (1, b"a"), (2, b"b")])
        ...         return (await popped).rows()
        >>> asyncio.run(main())
        [(1, b'a'), (2, b'b')]
        """
        return await self._waiting(
            lambda limit: self._end.pop(n, key_max=limit), n, key_max, wait_s
        )

    async def peek(
        self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None
    ) -> Batch:
        """What `pop` would take, without taking it.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([(2, b"b"), (1, b"a")])
        ...         return (await queue.peek()).rows(), len(queue)
        >>> asyncio.run(main())
        ([(1, b'a')], 2)
        """
        return await self._waiting(
            lambda limit: self._end.peek(n, key_max=limit), n, key_max, wait_s
        )

    async def scan(
        self,
        *,
        keys: tuple[int | None, int | None] | None = None,
        columns: list[str] | None = None,
    ) -> pa.RecordBatchReader:
        """All items as they stand now, in the order of pops, as Arrow batches; pops nothing.

        The reader is Arrow's own and blocks while it reads: give it to a thread.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([(3, b"c"), (1, b"a"), (2, b"b")])
        ...         reader = await queue.scan(keys=(2, None), columns=["key"])
        ...         return (await asyncio.to_thread(reader.read_all)).to_pydict()
        >>> asyncio.run(main())
        {'key': [2, 3]}
        """
        return await self._in_turn(lambda: self._end.scan(keys=keys, columns=columns))

    def read(self, n: int = 1, *, key_max: KeyMax = None, wait_s: float | None = None) -> Read:
        """A transaction: leaving the block normally pops the items, and they stay if it raises or
        is cancelled.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([(1, b"a"), (2, b"b")])
        ...         async with queue.read(2) as read:
        ...             await read.push([(9, b"retry")])
        ...         return (await queue.pop(2)).rows()
        >>> asyncio.run(main())
        [(9, b'retry')]
        """
        from tidemill.aio.read import Read  # noqa: PLC0415  A read knows the end it reads from.

        return Read(self, n, key_max, wait_s)

    async def delete(self, low: int, high: int) -> int:
        """Remove the items with keys from `low` to `high`, both included; returns how many.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([(key, b"") for key in range(10)])
        ...         return await queue.delete(2, 4), len(queue)
        >>> asyncio.run(main())
        (3, 7)
        """
        return await self._in_turn(lambda: self._end.delete(low, high))

    async def clear(self) -> int:
        """Remove everything from this end; other forks keep theirs. Returns how many items it had.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([b"a", b"b"])
        ...         return await queue.clear(), len(queue)
        >>> asyncio.run(main())
        (2, 0)
        """
        return await self._in_turn(self._end.clear)

    async def fork(self, name: str) -> Fork:
        """Split this end in two: the fork starts where this end stands, and each goes its own way.

        A fork that exists already is returned as it is.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...         await queue.push([(1, b"a"), (2, b"b")])
        ...         audit = await queue.fork("audit")
        ...         return (await queue.pop(2)).rows(), (await audit.pop(1)).rows()
        >>> asyncio.run(main())
        ([(1, b'a'), (2, b'b')], [(1, b'a')])
        """
        from tidemill.aio.fork import Fork  # noqa: PLC0415  A fork is a consuming end itself.

        fork = await self._in_turn(lambda: self._end.fork(name))
        return Fork(fork, self._around)

    async def shovel(
        self, destination: PriorityQueue, *, on_progress: Callable[[int], None] | None = None
    ) -> int:
        """Move everything that is left at this end to another open queue; returns how many items.

        Until it is done, this end counts as being read. Cancelled, it is seen through.
        `on_progress` is called from another thread than the event loop's.

        >>> import asyncio, tempfile, tidemill as tm
        >>> async def main():
        ...     async with (
        ...         tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue,
        ...         tm.aio.PriorityQueue(tempfile.mkdtemp()) as other,
        ...     ):
        ...         await queue.push([(2, b"b"), (1, b"a")])
        ...         return await queue.shovel(other), len(queue), (await other.pop(2)).rows()
        >>> asyncio.run(main())
        (2, 0, [(1, b'a'), (2, b'b')])
        """
        from tidemill.aio.priority_queue import (  # noqa: PLC0415  A queue is an end itself.
            PriorityQueue,
        )

        if not isinstance(destination, PriorityQueue):
            raise InvalidInput(
                f"items are moved to an open aio.PriorityQueue, not to {destination!r}"
            )
        # Not in turn: others are told that the end is being read, and do not wait for it.
        return await self._around.run(
            lambda: self._end.shovel(destination._queue, on_progress=on_progress)
        )

    def __len__(self) -> int:
        return len(self._end)

    def __bool__(self) -> bool:
        # A queue is itself even when it is empty; `len(queue)` asks for the items.
        return True

    @property
    def _end(self) -> files.ConsumingEnd:
        return self._attachment[0]

    @property
    def _around(self) -> Surroundings:
        return self._attachment[1]

    @property
    def _attachment(self) -> tuple[files.ConsumingEnd, Surroundings]:
        if self._attached is None:
            raise Closed(f"{self!r}: open it with `async with`, or `await queue.open()`")
        return self._attached

    @property
    def _turn(self) -> asyncio.Semaphore:
        return self._around.turns.setdefault(self._name, asyncio.Semaphore(AIO_CALLS_PER_END_MAX))

    async def _in_turn(self, call: Callable[[], T]) -> T:
        """Run a call of this end in a thread, when it is its turn."""
        self._around.check()
        async with self._turn:
            return await self._around.run(call)

    async def _waiting(
        self, attempt: Callable[[int | None], Found], n: int, key_max: KeyMax, wait_s: float | None
    ) -> Found:
        """Attempt until something is found or the time is up."""
        if wait_s is None or whole_number(n) == 0:
            return await self._in_turn(lambda: attempt(_limit(key_max)))
        around = self._around
        around.check()
        deadline_s = around.loop.time() + wait_seconds(wait_s)
        with around.arrivals.wait() as wait:
            async with self._turn:
                found, due_s = await around.run(lambda: self._look(attempt, key_max))
            while not len(found) and (left_s := deadline_s - around.loop.time()) > 0:
                await wait.sleep(min(left_s, due_s, around.core.view.wait_s_max))
                async with self._turn:
                    wait.look()
                    due_s = _FOREVER_S
                    # Not worth a thread if nothing is there; raises if the end is gone. Beside the
                    # owner, to tell means to read from disk.
                    if around.core.is_read_only or len(self._end):
                        found, due_s = await around.run(lambda: self._look(attempt, key_max))
            return found

    def _look(self, attempt: Callable[[int | None], Found], key_max: KeyMax) -> tuple[Found, float]:
        """One attempt; and if it finds nothing, how long until it is worth another."""
        limit = _limit(key_max)
        found = attempt(limit)
        if len(found) or limit is None or not callable(key_max):
            return found, _FOREVER_S
        # The key is taken for a clock in nanoseconds.
        next_keys = self._end.peek(1).keys.to_pylist()
        return found, look_in_s(next_keys[0], limit) if next_keys else _FOREVER_S


def _limit(key_max: KeyMax) -> int | None:
    return key_max() if callable(key_max) else key_max
