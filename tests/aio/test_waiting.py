"""Waits under asyncio: they hold no thread, hear of every push, and end when they should."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

import tidemill as tm
from tests.aio.event_loop import in_event_loop, threads_of_ours, until
from tidemill.files.disk.filesystem import File, LocalFileSystem


async def waiting(queue: tm.aio.PriorityQueue, count: int) -> None:
    """Return once so many calls are asleep."""
    arrivals = queue._around.arrivals
    await until(lambda: len(arrivals._waits) == count and not queue._around.threads._under_way)


@in_event_loop
async def test_a_pop_that_finds_something_does_not_wait(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a")])
        assert (await queue.pop(5, wait_s=60)).rows() == [(1, b"a")]
        assert (await queue.pop(5, wait_s=0)).rows() == []


@in_event_loop
async def test_who_wants_no_items_does_not_wait_for_any(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue, asyncio.timeout(60):
        assert len(await queue.pop(0, wait_s=600)) == len(await queue.peek(0, wait_s=600)) == 0
        async with queue.read(0, wait_s=600) as read:
            assert len(read.batch) == 0


@in_event_loop
async def test_a_wait_ends_empty_handed_when_its_time_is_up(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        start_s = time.monotonic()
        assert (await queue.pop(5, wait_s=0.2)).rows() == []
        assert time.monotonic() - start_s >= 0.2


@in_event_loop
async def test_hundreds_of_waits_need_no_thread_and_hold_nobody_up(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        audit = await queue.fork("audit")
        pops = [asyncio.create_task(queue.pop(1, wait_s=60)) for _ in range(300)]
        peek = asyncio.create_task(audit.peek(1, wait_s=60))
        await waiting(queue, 301)
        assert len(threads_of_ours()) <= 8
        # Other calls go on meanwhile.
        assert (await queue.pop(1)).rows() == []
        await queue.push([(n, b"%d" % n) for n in range(300)])
        found = [row for pop in pops for row in (await pop).rows()]
        assert sorted(found) == [(n, b"%d" % n) for n in range(300)]
        assert (await peek).rows() == [(0, b"0")]
        assert len(queue) == 0


@in_event_loop
async def test_a_push_from_another_thread_wakes_a_wait(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        pop = asyncio.create_task(queue.pop(1, wait_s=60))
        await waiting(queue, 1)
        thread = threading.Thread(target=queue._queue.push, args=([(1, b"a")],))
        thread.start()
        assert (await pop).rows() == [(1, b"a")]
        thread.join()


@in_event_loop
async def test_a_read_waits_too(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:

        async def consume() -> list[tuple[int, object]]:
            async with queue.read(5, wait_s=60) as read:
                return read.batch.rows()

        consumed = asyncio.create_task(consume())
        await waiting(queue, 1)
        await queue.push([(2, b"b"), (1, b"a")])
        assert await consumed == [(1, b"a"), (2, b"b")]
        assert len(queue) == 0
        async with queue.read(5, wait_s=0.01) as read:
            assert len(read.batch) == 0


@in_event_loop
async def test_a_push_above_the_greatest_key_keeps_the_wait_going(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        pop = asyncio.create_task(queue.pop(9, key_max=10, wait_s=60))
        await waiting(queue, 1)
        await queue.push([(11, b"no")])
        await waiting(queue, 1)
        assert not pop.done()
        await queue.push([(10, b"yes")])
        assert (await pop).rows() == [(10, b"yes")]


@in_event_loop
async def test_a_delay_queue_hands_items_out_when_they_are_due_and_not_before(
    tmp_path: Path,
) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        pop = asyncio.create_task(queue.pop(9, key_max=time.time_ns, wait_s=60))
        await waiting(queue, 1)
        due_ns = time.time_ns() + 300_000_000
        await queue.push([(due_ns + 3_600_000_000_000, b"much later"), (due_ns, b"soon")])
        assert (await pop).rows() == [(due_ns, b"soon")]
        assert time.time_ns() >= due_ns


@in_event_loop
async def test_a_clock_that_is_set_while_one_waits_is_noticed(tmp_path: Path) -> None:
    now_ns = time.time_ns()
    hour_ns = 3_600_000_000_000
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(now_ns + hour_ns, b"later")])
        pop = asyncio.create_task(queue.pop(1, key_max=lambda: now_ns, wait_s=600))
        await waiting(queue, 1)
        now_ns += 2 * hour_ns
        assert len(await asyncio.wait_for(pop, 60)) == 1


@in_event_loop
async def test_a_clock_of_another_kind_is_not_asked_again_and_again(tmp_path: Path) -> None:
    asked = 0

    def ticks() -> int:
        nonlocal asked
        asked += 1
        return 5

    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(10, b"after ten ticks")])
        began_s = time.monotonic()
        assert len(await queue.pop(1, key_max=ticks, wait_s=0.3)) == 0
        # Once in a millisecond at most.
        assert asked <= 1000 * (time.monotonic() - began_s) + 2


@in_event_loop
async def test_closing_ends_every_wait(tmp_path: Path) -> None:
    queue = await tm.aio.PriorityQueue(tmp_path).open()
    fork = await queue.fork("f")
    waits = [asyncio.create_task(end.pop(1, wait_s=60)) for end in (queue, fork)]
    await waiting(queue, 2)
    await queue.close()
    for wait in waits:
        with pytest.raises(tm.Closed):
            await wait


@in_event_loop
async def test_removing_a_fork_ends_its_waits(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        fork = await queue.fork("f")
        wait = asyncio.create_task(fork.pop(1, wait_s=60))
        await waiting(queue, 1)
        await fork.remove()
        with pytest.raises(tm.ForkRemoved):
            await wait


@pytest.mark.parametrize("wait_s", [float("inf"), 10**400, 1e300])
def test_a_wait_may_be_as_long_as_one_likes(tmp_path: Path, wait_s: float) -> None:
    @in_event_loop
    async def main() -> None:
        async with tm.aio.PriorityQueue(tmp_path) as queue:
            pop = asyncio.create_task(queue.pop(1, wait_s=wait_s))
            await waiting(queue, 1)
            await queue.push([(1, b"a")])
            assert (await pop).rows() == [(1, b"a")]

    main()


@in_event_loop
async def test_a_wait_beside_the_owner_never_reads_from_disk_in_the_event_loop(
    tmp_path: Path,
) -> None:
    class NotingFileSystem(LocalFileSystem):
        def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
            readers.add(threading.current_thread())
            return super().open(path, write=write, create=create)

    readers: set[threading.Thread] = set()
    fs = NotingFileSystem()
    with tm.PriorityQueue(tmp_path) as owner:
        async with tm.aio.PriorityQueue(tmp_path, read_only=True, file_system=fs) as queue:
            peek = asyncio.create_task(queue.peek(1, wait_s=60))
            await waiting(queue, 1)
            readers.clear()
            await until(lambda: bool(readers))
            owner.push([(1, b"a")])
            assert (await peek).rows() == [(1, b"a")]
        assert threading.current_thread() not in readers
