"""A ring used from asyncio."""

from __future__ import annotations

import asyncio
import uuid

import pytest

import tidemill as tm


def _ring(**options: int) -> tm.aio.Ring:
    return tm.aio.Ring(f"memory:aio-{uuid.uuid4().hex}", **{"capacity": 3, **options})


def test_everything_can_be_awaited() -> None:
    async def main() -> None:
        async with _ring() as ring:
            assert ring.capacity == 3
            assert await ring.enqueue(b"a", operation_id="first") == 0
            assert await ring.enqueue_many([1, 2]) == 1
            assert (await ring.outcome("first")).offset == 0
            assert await ring.get(1) == (1, 1)
            assert await ring.get_many(0, 9) == [(0, b"a"), (1, 1), (2, 2)]
            audit = await ring.group("audit")
            assert audit.name == "audit"
            assert await audit.dequeue_many(2) == [(0, b"a"), (1, 1)]
            assert await ring.dequeue() == (0, b"a")
            assert (await ring.info()).groups == {"default": 2, "audit": 1}
            await audit.remove()
            with pytest.raises(tm.GroupRemoved):
                await audit.dequeue()
            await ring.remove()

    asyncio.run(main())


def test_many_who_wait_hold_no_threads() -> None:
    async def main() -> None:
        async with _ring() as ring:
            waiting = [asyncio.create_task(ring.dequeue(wait_s=60)) for _ in range(50)]
            await asyncio.sleep(0)
            for number in range(50):
                await ring.enqueue(number, wait_s=60)
            found = await asyncio.gather(*waiting)
            assert sorted(entry.offset for entry in found if entry) == list(range(50))

    asyncio.run(main())


def test_a_wait_that_is_cancelled_has_taken_nothing() -> None:
    async def main() -> None:
        async with _ring() as ring:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ring.dequeue(wait_s=60), 0.1)
            await ring.enqueue(b"a")
            assert await ring.dequeue() == (0, b"a")
            assert await ring.dequeue(wait_s=0.01) is None
            with pytest.raises(tm.InvalidInput, match="takes a list of values"):
                await ring.enqueue_many("123")
            await ring.enqueue_many([1, 2, 3])
            with pytest.raises(tm.QueueFull):
                await ring.enqueue(4, wait_s=0.01)

    asyncio.run(main())


def test_a_ring_that_is_not_open_says_so() -> None:
    async def main() -> None:
        ring = _ring()
        with pytest.raises(tm.Closed, match="not open"):
            await ring.enqueue(b"a")
        await ring.open()
        await ring.close()
        await ring.close()
        with pytest.raises(tm.Closed, match="was closed"):
            await ring.dequeue()
        with pytest.raises(tm.NotAQueue):
            await tm.aio.Ring("memory:no-such-ring").open()

    asyncio.run(main())


def test_closing_wakes_whoever_waits_and_ends_the_groups() -> None:
    async def main() -> None:
        ring = await _ring().open()
        audit = await ring.group("audit")
        waiting = [asyncio.create_task(end.dequeue(wait_s=60)) for end in (ring, audit)]
        while not ring._pool()._under_way:
            await asyncio.sleep(0)
        await ring.close()
        for woken in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(woken, tm.Closed)
        with pytest.raises(tm.Closed, match="open it again"):
            await audit.dequeue()
        with pytest.raises(tm.Closed, match="open it again"):
            await audit.remove()

    asyncio.run(main())


def test_a_ring_is_removed_without_being_opened() -> None:
    async def main() -> None:
        url = "memory:aio-removed"
        async with tm.aio.Ring(url, capacity=10) as ring:
            assert ring.name == "aio-removed"
            await ring.enqueue(b"a")
        await tm.aio.Ring.remove_at(url)
        with pytest.raises(tm.NotAQueue):
            await tm.aio.Ring.remove_at(url)
        with pytest.raises(tm.NotAQueue):
            await tm.aio.Ring(url).open()

    asyncio.run(main())
