"""The face of a queue under asyncio: the same as without, but awaited."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.aio.event_loop import in_event_loop, threads_of_ours

TWINS = [
    (tm.PriorityQueue, tm.aio.PriorityQueue),
    (tm.Fork, tm.aio.Fork),
    (tm.Consumer, tm.aio.Consumer),
    (tm.Read, tm.aio.Read),
]


@pytest.mark.parametrize(("plain", "twin"), TWINS, ids=lambda one: one.__name__)
def test_a_twin_has_every_method_with_the_same_parameters(plain: type, twin: type) -> None:
    for name, member in inspect.getmembers(plain):
        if name.startswith("_"):
            continue
        if not callable(member):
            assert isinstance(getattr(twin, name), property), name
            continue
        wanted = inspect.signature(member).parameters
        found = inspect.signature(getattr(twin, name)).parameters
        assert [str(one) for one in found.values()] == [str(one) for one in wanted.values()], name


def test_a_twin_is_opened_with_the_same_options() -> None:
    wanted = inspect.signature(tm.PriorityQueue).parameters
    assert inspect.signature(tm.aio.PriorityQueue).parameters == wanted


@in_event_loop
async def test_what_is_pushed_comes_out_by_key(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        receipt = await queue.push([(3, b"c"), (1, b"a"), (2, b"b")])
        assert (receipt.first, receipt.last, receipt.count) == (1, 3, 3)
        assert receipt.durability == "synced"
        assert len(queue) == 3
        assert queue
        assert (await queue.peek(1)).rows() == [(1, b"a")]
        assert (await queue.pop(2)).rows() == [(1, b"a"), (2, b"b")]
        assert await queue.delete(0, 9) == 1
        assert await queue.clear() == 0
        assert (await queue.pop(2)).rows() == []
        assert (await queue.stats()).next_seq == 4
        await queue.sync()
        assert queue.path == tmp_path
    with tm.PriorityQueue(tmp_path) as plain:
        assert plain.stats().next_seq == 4


@in_event_loop
async def test_columns_go_in_and_out(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string())])
    async with tm.aio.PriorityQueue(tmp_path, schema=schema) as queue:
        await queue.push(pa.table({"rank": [2, 1], "city": ["Lyon", "Oslo"]}), key="rank")
        assert (await queue.pop(2)).payload.column("city").to_pylist() == ["Oslo", "Lyon"]
        assert queue.schema == schema


@in_event_loop
async def test_a_push_of_nothing_has_a_receipt_of_nothing(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        assert (await queue.push([])).count == 0


@in_event_loop
async def test_forks_go_their_own_way_and_can_be_removed(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        audit = await queue.fork("audit")
        again = await queue.fork("audit")
        assert audit.name == "audit"
        assert (await queue.pop(9)).rows() == [(1, b"a"), (2, b"b")]
        assert (await audit.pop(1)).rows() == [(1, b"a")]
        assert len(again) == 1
        deeper = await audit.fork("deeper")
        assert (await deeper.pop(9)).rows() == [(2, b"b")]
        assert await queue.forks() == ["audit", "deeper"]
        await audit.remove()
        assert await queue.forks() == ["deeper"]
        with pytest.raises(tm.ForkRemoved):
            await again.pop()


@in_event_loop
async def test_a_read_pops_on_leaving_and_keeps_what_failed(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        await queue.push([(1, b"a"), (2, b"b")])
        try:
            async with queue.read(1) as read:
                await read.push([(9, b"never")])
                raise RuntimeError("the work failed")
        except RuntimeError:
            pass
        assert len(queue) == 2
        async with queue.read(1) as read:
            assert read.batch.rows() == [(1, b"a")]
            assert await read.push([(9, b"again")]) == 1
            with pytest.raises(tm.ReadInProgress):
                await queue.pop()
            with pytest.raises(tm.ReadInProgress):
                async with queue.read():
                    pass
        async with queue.read(9) as read:
            read.keep()
        with pytest.raises(tm.Closed):
            _ = read.batch
        assert (await queue.pop(9)).rows() == [(2, b"b"), (9, b"again")]


@in_event_loop
async def test_an_error_reaches_the_call_that_made_it(tmp_path: Path) -> None:
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        with pytest.raises(tm.InvalidKey):
            await queue.push([(1.5, b"")])
        with pytest.raises(tm.InvalidInput):
            await queue.pop(1, wait_s=-1)
        with pytest.raises(tm.InvalidInput):
            await queue.delete(2, 1)
        with pytest.raises(tm.InvalidKey):
            await queue.pop(1, key_max=lambda: 1.5, wait_s=1)  # type: ignore[arg-type, return-value]
        assert len(queue) == 0


@in_event_loop
async def test_a_queue_that_is_not_open_says_how_to_open_it(tmp_path: Path) -> None:
    queue = tm.aio.PriorityQueue(tmp_path / "queue")
    with pytest.raises(tm.Closed, match="async with"):
        await queue.pop()
    await queue.close()
    assert not (tmp_path / "queue").exists()
    await queue.open()
    with pytest.raises(tm.Closed, match="another handle"):
        await queue.open()
    await queue.close()
    await queue.close()
    for call in (queue.pop(), queue.push([b""]), queue.stats(), queue.fork("f"), queue.sync()):
        with pytest.raises(tm.Closed):
            await call


@in_event_loop
async def test_a_queue_that_cannot_be_opened_leaves_no_thread_and_may_be_tried_again(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(tmp_path):
        queue = tm.aio.PriorityQueue(tmp_path)
        with pytest.raises(tm.Locked):
            await queue.open()
        assert threads_of_ours() == []
    async with queue:
        assert len(queue) == 0


def test_a_queue_is_of_use_in_its_own_event_loop_only(tmp_path: Path) -> None:
    queue = tm.aio.PriorityQueue(tmp_path)

    async def use() -> None:
        with pytest.raises(tm.CallerError, match="another event loop"):
            await queue.pop()
        with pytest.raises(tm.CallerError, match="another event loop"):
            await queue.push([b""])

    async def close_elsewhere() -> None:
        with pytest.raises(tm.CallerError, match="another event loop"):
            await queue.close()

    async def main() -> None:
        await queue.open()
        await asyncio.to_thread(asyncio.run, use())
        await asyncio.to_thread(asyncio.run, close_elsewhere())

    asyncio.run(main())
    asyncio.run(use())
    # Once its own loop has ended, any other may close it.
    asyncio.run(queue.close())
    assert threads_of_ours() == []
    tm.PriorityQueue(tmp_path).close()


@in_event_loop
async def test_closing_finishes_the_pushes_that_were_begun(tmp_path: Path) -> None:
    queue = await tm.aio.PriorityQueue(tmp_path).open()
    pushes = [asyncio.create_task(queue.push([(n, b"")])) for n in range(50)]
    await asyncio.sleep(0)
    await queue.close()
    assert sorted([(await push).first for push in pushes]) == list(range(1, 51))
    with tm.PriorityQueue(tmp_path) as plain:
        assert len(plain) == 50


@in_event_loop
async def test_it_shows_what_it_is(tmp_path: Path) -> None:
    queue = tm.aio.PriorityQueue("spool")
    assert repr(queue) == "<aio.PriorityQueue 'spool', not open>"
    async with tm.aio.PriorityQueue(tmp_path) as queue:
        assert repr(queue) == f"<aio.PriorityQueue {str(tmp_path)!r}, 0 items>"
        fork = await queue.fork("f")
        assert repr(fork) == f"<aio.Fork 'f' of {str(tmp_path)!r}, 0 items>"


@in_event_loop
async def test_a_reader_follows_a_queue_of_another_handle(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as owner:
        async with tm.aio.PriorityQueue(tmp_path, read_only=True) as reader:
            waiting = asyncio.ensure_future(reader.peek(wait_s=30))
            await asyncio.sleep(0)
            owner.push([(1, b"a")])
            assert (await waiting).rows() == [(1, b"a")]
            for call in (reader.push([b"x"]), reader.pop(), reader.clear(), reader.fork("new")):
                with pytest.raises(tm.ReadOnly):
                    await call
