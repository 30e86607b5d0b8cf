"""Cancelled calls: either nothing happened, or the outcome is in the caller's hands."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.aio.event_loop import held_up, in_event_loop, threads_of_ours, until
from tests.aio.test_waiting import waiting
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.queue.read import Read
from tidemill.limits import AIO_CALLS_PER_END_MAX

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"


@in_event_loop
async def test_a_wait_that_is_cancelled_ends_at_once_and_pops_nothing(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        pop = asyncio.create_task(queue.pop(10, wait_s=60))
        await waiting(queue, 1)
        threads = len(threads_of_ours())
        start_s = time.monotonic()
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        assert time.monotonic() - start_s < 30
        assert not queue._around.arrivals._waits
        await queue.push([(1, b"a")])
        assert len(queue) == 1
        assert len(threads_of_ours()) <= threads + 2


@in_event_loop
async def test_a_wait_for_the_owner_of_a_folder_that_is_cancelled_ends_at_once(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(tmp_path):
        start_s = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1), tm.aio.PriorityQueue(tmp_path, lock_wait_s=100):
                pass
        assert time.monotonic() - start_s < 50
    assert threads_of_ours() == []
    with tm.PriorityQueue(tmp_path):
        pass  # Nobody opened it behind the back of the call that has ended.


@in_event_loop
async def test_a_call_that_is_cancelled_before_its_turn_has_done_nothing(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        count = AIO_CALLS_PER_END_MAX
        await queue.push([(n, b"") for n in range(count + 2)])
        with held_up(fs):
            # As many as may go to threads at once.
            first = [asyncio.create_task(queue.pop(1)) for _ in range(count)]
            await until(fs.sync_began.is_set)
            others = [asyncio.create_task(call) for call in (queue.pop(1), queue.clear())]
            await asyncio.sleep(0)
            for other in others:
                other.cancel()
            for other in others:
                with pytest.raises(asyncio.CancelledError):
                    await other
        popped = [key for task in first for key in (await task).keys.to_pylist()]
        assert sorted(popped) == list(range(count))
        assert (await queue.pop(9)).keys.to_pylist() == [count, count + 1]


async def cancelled_at_the_disk(
    queue: tm.aio.PriorityQueue, fs: CountingFileSystem, task: asyncio.Task[object]
) -> None:
    """Cancel a task while its call is being written, then let the disk go on."""
    with held_up(fs):
        await until(fs.sync_began.is_set)
        task.cancel("stop it")
        await asyncio.sleep(0)
        assert not task.done()


@in_event_loop
async def test_what_a_cancelled_pop_had_taken_is_delivered_and_the_next_await_is_cancelled(
    tmp_path: Path,
) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        got: list[object] = []

        async def work() -> None:
            got.append((await queue.pop(1)).rows())
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError as error:
                got.append(error.args)
                # It strikes once: what cleans up may wait.
                await asyncio.sleep(0.01)
                await queue.push([(9, b"cleaned up")])
                raise

        task = asyncio.create_task(work())
        await cancelled_at_the_disk(queue, fs, task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert got == [[(1, b"a")], ("stop it",)]
        assert task.cancelled()
        assert (await queue.pop(9)).rows() == [(2, b"b"), (9, b"cleaned up")]


@in_event_loop
async def test_a_task_that_ends_with_its_pop_returns_the_items(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(1, b"a")])
        pop = asyncio.create_task(queue.pop(1))
        await cancelled_at_the_disk(queue, fs, pop)
        assert (await pop).rows() == [(1, b"a")]


async def strike_at_the_disk(fs: CountingFileSystem, limit: asyncio.Timeout) -> None:
    """Let a timeout strike while a call is being written, then let the disk go on."""
    # Before that, the call would rightly be withdrawn.
    await until(fs.sync_began.is_set)
    limit.reschedule(0)
    await until(limit.expired)
    await asyncio.sleep(0)
    fs.may_sync.set()


@in_event_loop
async def test_a_timeout_that_strikes_in_the_middle_of_a_pop_lets_it_end(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(1, b"a"), (2, b"b")])

        with held_up(fs):
            async with asyncio.timeout(None) as limit:
                striking = asyncio.create_task(strike_at_the_disk(fs, limit))
                batch = await queue.pop(1)
            assert batch.rows() == [(1, b"a")]
            # The timeout has taken its cancellation back, and none strikes later.
            await asyncio.sleep(0.01)
            await striking
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

        async def release() -> None:
            await until(lambda: pop.cancelling() > 0)
            await asyncio.sleep(0)
            fs.may_sync.set()

        with held_up(fs):
            pop = asyncio.create_task(queue.pop(1))
            releasing = asyncio.create_task(release())
            await until(fs.sync_began.is_set)
            assert (await asyncio.wait_for(pop, 0.05)).rows() == [(2, b"b")]
            await releasing

        # Inside the block it does strike: at the next await.
        await queue.push([(3, b"c")])

        async def pop_and_linger() -> None:
            async with asyncio.timeout(None) as limit:
                strikes.append(asyncio.create_task(strike_at_the_disk(fs, limit)))
                assert (await queue.pop(1)).rows() == [(3, b"c")]
                await asyncio.sleep(60)

        strikes: list[asyncio.Task[None]] = []
        with held_up(fs):
            with pytest.raises(TimeoutError):
                await asyncio.create_task(pop_and_linger())
            await strikes[0]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.pop(1, wait_s=60)


@in_event_loop
async def test_a_cancellation_is_not_lost_beside_a_timeout_that_strikes_too(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(1, b"a")])
        got: list[object] = []

        async def work() -> None:
            async with asyncio.timeout(None) as limit:
                limits.append(limit)
                got.append((await queue.pop(1)).rows())
            # The timeout took back its own request, and this is the other.
            await asyncio.sleep(60)

        limits: list[asyncio.Timeout] = []
        task = asyncio.create_task(work())
        with held_up(fs):
            await until(fs.sync_began.is_set)
            limits[0].reschedule(0)
            await until(lambda: task.cancelling() == 1)
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert got == [[(1, b"a")]]


@in_event_loop
async def test_a_worker_that_loops_over_pops_can_be_cancelled_at_any_time(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(n, b"") for n in range(5)])
        done: list[int] = []

        async def work() -> None:
            while True:
                done.extend((await queue.pop(1, wait_s=60)).keys.to_pylist())

        task = asyncio.create_task(work())
        await cancelled_at_the_disk(queue, fs, task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [0]
        assert (await queue.pop(9)).keys.to_pylist() == [1, 2, 3, 4]


@in_event_loop
async def test_a_read_whose_block_is_cancelled_pops_nothing(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a")])
        is_inside = asyncio.Event()

        async def work() -> None:
            async with queue.read(1) as read:
                await read.push([(2, b"never")])
                is_inside.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await is_inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await queue.pop(9)).rows() == [(1, b"a")]


@in_event_loop
async def test_a_read_that_is_cancelled_while_it_pops_has_popped(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        passed: list[str] = []

        async def work() -> None:
            async with queue.read(1):
                passed.append("worked")
            passed.append("popped")
            await asyncio.sleep(60)

        task = asyncio.create_task(work())
        await cancelled_at_the_disk(queue, fs, task)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert passed == ["worked", "popped"]
        assert (await queue.pop(9)).rows() == [(2, b"b")]


@in_event_loop
async def test_a_read_that_is_cancelled_before_it_pops_keeps_its_items_and_lets_others_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain_push = Read.push
    began, may_end = threading.Event(), threading.Event()

    def slow_push(read: Read, data: object, *, key: str | None = None) -> int:
        began.set()
        may_end.wait()
        return plain_push(read, data, key=key)

    monkeypatch.setattr(Read, "push", slow_push)
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a"), (2, b"b")])

        async def work() -> None:
            async with queue.read(1) as read:
                # Cancelled here it is seen through, and strikes at the next await: the way out.
                await read.push([(9, b"never")])

        task = asyncio.create_task(work())
        await until(began.is_set)
        task.cancel()
        await asyncio.sleep(0)
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await queue.pop(9)).rows() == [(1, b"a"), (2, b"b")]


@in_event_loop
async def test_a_read_that_times_out_before_its_turn_keeps_its_items_and_lets_others_read(
    tmp_path: Path,
) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        may_end = threading.Event()

        def key_max() -> int:
            may_end.wait()
            return 9

        async def work() -> None:
            async with asyncio.timeout(None) as limit, queue.read(1):
                # As many as may go to threads at once.
                calls = [queue.peek(1, key_max=key_max) for _ in range(AIO_CALLS_PER_END_MAX)]
                peeks.extend(map(asyncio.create_task, calls))
                await until(queue._turn.locked)
                limit.reschedule(0)

        peeks: list[asyncio.Task[tm.Batch]] = []
        try:
            with pytest.raises(TimeoutError):
                await work()
        finally:
            may_end.set()
        await asyncio.gather(*peeks)
        assert (await queue.pop(9)).rows() == [(1, b"a"), (2, b"b")]


@in_event_loop
async def test_a_close_that_is_cancelled_closes(tmp_path: Path) -> None:
    queue = await tm.aio.PriorityQueue(tmp_path).open()
    await queue.push([(1, b"a")])
    closing = asyncio.create_task(queue.close())
    await asyncio.sleep(0)
    closing.cancel()
    await closing
    with tm.PriorityQueue(tmp_path) as plain:
        assert len(plain) == 1


class Consumers:
    """Tasks that pop until they are cancelled, and write down what they have in hand."""

    def __init__(self, queue: tm.aio.PriorityQueue, chance: random.Random) -> None:
        self._queue = queue
        self._chance = chance
        self.got: list[int] = []
        self.cancelled = 0

    async def run(self) -> None:
        """One consumer after another, each cancelled a moment after it began."""
        queue, chance = self._queue, self._chance
        while len(queue):
            task = asyncio.create_task(self._consume())
            await asyncio.sleep(chance.choice([0, 0, 1e-4, 3e-4, 1e-3, 3e-3]))
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                self.cancelled += 1

    async def _consume(self) -> None:
        while True:
            n = self._chance.randrange(1, 5)
            if self._chance.random() < 0.5:
                # No await between the pop and the note.
                self.got += (await self._queue.pop(n, wait_s=60)).keys.to_pylist()
            else:
                async with asyncio.timeout(self._chance.choice([1e-4, 1e-3, 60])):
                    batch = await self._queue.pop(n, wait_s=60)
                    self.got += batch.keys.to_pylist()


@pytest.mark.parametrize("seed", range(100 if SOAK else 3))
def test_nothing_is_lost_or_doubled_however_pops_are_cancelled(
    tmp_path: Path, seed: int, report: Callable[[str], None]
) -> None:
    items = 2_000
    counts = [0, 0]

    @in_event_loop
    async def main() -> None:
        chance = random.Random(seed)
        async with tm.aio.PriorityQueue(tmp_path, sync="full") as queue:
            pushed = [chance.randrange(1000) * items + n for n in range(items)]
            for start in range(0, items, 500):
                await queue.push([(key, b"") for key in pushed[start : start + 500]])
            groups = [Consumers(queue, chance) for _ in range(4)]

            async def run(group: Consumers) -> None:
                while True:
                    try:
                        await group.run()
                        return
                    except TimeoutError:
                        counts[1] += 1

            await asyncio.gather(*[run(group) for group in groups])
            got = [key for group in groups for key in group.got]
            assert sorted(got) == sorted(pushed), f"seed {seed}"
            counts[0] = sum(group.cancelled for group in groups)

    main()
    assert counts[0] > 0
    report(f"asyncio: {counts[0]} consumers cancelled, {counts[1]} timed out, no item lost")
