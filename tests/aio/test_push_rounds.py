"""Pushes that are awaited at the same time share their commit, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.aio.event_loop import WITHIN_S, held_up, in_event_loop, until
from tests.files.counting_fs import CountingFileSystem
from tidemill.limits import PUSHES_PER_ROUND_MAX


@in_event_loop
async def test_pushes_that_are_awaited_together_share_a_sync(
    tmp_path: Path, report: Callable[[str], None]
) -> None:
    fs = CountingFileSystem()
    pushes = 1_000
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        before = fs.calls["sync.segment"]
        receipts = await asyncio.gather(*[queue.push([(n, b"%d" % n)]) for n in range(pushes)])
        syncs = fs.calls["sync.segment"] - before
        assert syncs <= 2
        # Each has its own receipt, and it is the right one.
        batch = await queue.pop(-1)
        seqs = dict(zip(batch.keys.to_pylist(), batch.seqs.to_pylist(), strict=True))
        assert [receipt.first for receipt in receipts] == [seqs[n] for n in range(pushes)]
    report(f"asyncio: {pushes:,} awaited pushes in {syncs} syncs")


@in_event_loop
async def test_rounds_are_bounded_and_larger_pushes_may_share_them(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path, sync="none") as queue:
        count = 2 * PUSHES_PER_ROUND_MAX + 5
        sizes = [1 + n % 3 for n in range(count)]
        receipts = await asyncio.gather(
            *[queue.push([(n, b"%d" % at) for at in range(size)]) for n, size in enumerate(sizes)]
        )
        assert [receipt.count for receipt in receipts] == sizes
        ranges = sorted((receipt.first, receipt.last) for receipt in receipts)
        assert ranges[0][0] == 1
        assert all(last + 1 == first for (_, last), (first, _) in pairwise(ranges))
        assert ranges[-1][1] == sum(sizes) == len(queue)


@in_event_loop
async def test_a_bad_push_harms_no_other_of_its_round(tmp_path: Path) -> None:
    def broken() -> Iterator[tuple[int, bytes]]:
        yield 1, b"half"
        raise LookupError("the caller's own error")

    async with tm.aio.PriorityQueue(tmp_path) as queue:
        outcomes = await asyncio.gather(
            queue.push([(1, b"good")]),
            queue.push([(2**63, b"bad")]),
            queue.push(broken()),
            queue.push([(2, b"good"), (3, b"good")]),
            queue.push(5),
            return_exceptions=True,
        )
        kinds = [type(outcome) for outcome in outcomes]
        assert kinds[:3] == [tm.Receipt, tm.InvalidKey, LookupError]
        assert kinds[3] is tm.Receipt
        assert isinstance(outcomes[4], tm.InvalidInput)
        assert (await queue.pop(-1)).keys.to_pylist() == [1, 2, 3]


@in_event_loop
async def test_nobody_waits_for_rows_that_are_still_being_made(tmp_path: Path) -> None:
    others_are_done = threading.Event()

    def rows() -> Iterator[tuple[int, bytes]]:
        yield 1, b"a"
        assert others_are_done.wait(WITHIN_S)
        yield 2, b"b"

    async def others(queue: tm.aio.PriorityQueue) -> None:
        for key in range(3, 6):
            await queue.push([(key, b"c")])
        others_are_done.set()

    async with tm.aio.PriorityQueue(tmp_path) as queue:
        receipt, _ = await asyncio.gather(queue.push(rows()), others(queue))
        assert (receipt.first, receipt.count) == (4, 2)
        assert (await queue.pop(-1)).keys.to_pylist() == [1, 2, 3, 4, 5]


@in_event_loop
async def test_many_that_are_still_being_made_leave_threads_to_others(tmp_path: Path) -> None:
    go = threading.Event()

    class Slow:
        """Rows that can be read, and are no iterator themselves."""

        def __init__(self, key: int) -> None:
            self._key = key

        def __iter__(self) -> Iterator[tuple[int, bytes]]:
            assert go.wait(WITHIN_S)
            yield self._key, b"slow"

    async with tm.aio.PriorityQueue(tmp_path) as queue:
        slow = [asyncio.create_task(queue.push(Slow(key))) for key in range(20)]
        await queue.push([(100, b"quick")])
        assert (await queue.peek()).rows() == [(100, b"quick")]
        # Whatever has its rows in memory is quick, as what was popped has.
        batch = await queue.pop()
        for rows in (batch, batch.to_arrow(), pa.array([b"one"]), pa.chunked_array([[b"two"]])):
            await queue.push(rows)
        assert len(await queue.pop(-1)) == 4
        await queue.push([(100, b"quick")])
        # Those that have not begun can be withdrawn.
        slow[-1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow[-1]
        go.set()
        await asyncio.gather(*slow[:-1])
        assert (await queue.pop(-1)).keys.to_pylist() == [*range(19), 100]


@in_event_loop
async def test_a_full_queue_refuses_those_that_do_not_fit_and_takes_the_others(
    tmp_path: Path,
) -> None:
    async with tm.aio.PriorityQueue(
        tmp_path, bytes_max=256 * 1024, sync="none", maintain_in_background=False
    ) as queue:
        outcomes = await asyncio.gather(
            *[queue.push([(n, bytes(10_000))]) for n in range(60)], return_exceptions=True
        )
        taken = [one for one in outcomes if isinstance(one, tm.Receipt)]
        refused = [one for one in outcomes if isinstance(one, tm.QueueFull)]
        assert len(taken) + len(refused) == 60
        assert taken
        assert refused
        assert len(queue) == len(taken)
        assert (await queue.stats()).disk_bytes <= 256 * 1024


@in_event_loop
async def test_a_failing_disk_fails_every_push_of_the_round_each_with_its_own_error(
    tmp_path: Path,
) -> None:
    class Failing(CountingFileSystem):
        fails = False

        def open(self, path: Path, *, write: bool = False, create: bool = False):  # type: ignore[no-untyped-def]
            file = super().open(path, write=write, create=create)
            plain_sync = file.sync

            def sync() -> None:
                if self.fails:
                    raise OSError(5, "Input/output error")
                plain_sync()

            file.sync = sync  # type: ignore[method-assign]
            return file

    fs = Failing()
    queue = await tm.aio.PriorityQueue(tmp_path, file_system=fs).open()
    fs.fails = True
    outcomes = await asyncio.gather(
        *[queue.push([(n, b"")]) for n in range(10)], return_exceptions=True
    )
    assert {type(outcome) for outcome in outcomes} == {tm.StorageFailed}
    assert len({id(outcome) for outcome in outcomes}) == 10
    fs.fails = False
    await queue.close()


@in_event_loop
async def test_a_push_that_is_cancelled_before_its_round_is_not_pushed(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        rounds = queue._around.rounds
        pushes = []
        with held_up(fs):
            # Both rounds are taken, so that a third push has to wait.
            for number in (1, 2):
                pushes.append(asyncio.create_task(queue.push([(number, b"")])))
                await until(lambda number=number: rounds._rounds == number)  # type: ignore[misc]
            third = asyncio.create_task(queue.push([(3, b"never")]))
            await until(lambda: bool(rounds._waiting))
            third.cancel()
            with pytest.raises(asyncio.CancelledError):
                await third
        await asyncio.gather(*pushes)
        assert (await queue.pop(-1)).keys.to_pylist() == [1, 2]


@in_event_loop
async def test_a_push_that_is_cancelled_on_its_way_to_the_disk_still_gets_its_receipt(
    tmp_path: Path,
) -> None:
    fs = CountingFileSystem()
    async with tm.aio.PriorityQueue(tmp_path, file_system=fs) as queue:
        with held_up(fs):
            push = asyncio.create_task(queue.push([(1, b"a")]))
            await until(fs.sync_began.is_set)
            push.cancel()
            await asyncio.sleep(0)
            assert not push.done()
        assert (await push).first == 1
        assert len(queue) == 1
