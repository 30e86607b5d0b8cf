"""The log under asyncio: sends that share a write, waits that hold no thread, cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.aio.event_loop import in_event_loop, until
from tests.log.on_files.test_processes import child, line
from tidemill.log.contract import Reservation
from tidemill.log.memory import Shelf
from tidemill.log.opening import _shelves


def shelf_of(name: str) -> Shelf:
    return _shelves.setdefault(name, Shelf())


@in_event_loop
async def test_a_log_is_archived_trimmed_and_verified(tmp_path: Path) -> None:
    async with tm.aio.Log(tmp_path / "log") as log, await log.publisher() as out:
        await out.send([b"a", b"b", b"c"])
        assert (await log.archive(tmp_path / "archive", consumed=True)).rows == 0
        assert (await log.archive(bytes_max=0, sweep=True)).rows == 3
        assert (await log.verify_archive(deep=True)).rows == 3
        assert await log.trim(older_than=timedelta(days=1), bytes_max=10**9) == 1
        assert (await log.read()).rows() == [b"a", b"b", b"c"]
        assert await log.trim(older_than=timedelta()) == 4


@in_event_loop
async def test_a_wait_for_another_process_that_publishes_ends_at_once_when_it_is_cancelled(
    tmp_path: Path,
) -> None:
    with child("publish", tmp_path / "log", 0) as process:
        assert line(process) == "ready"
        async with tm.aio.Log(tmp_path / "log", lock_wait_s=100) as log:
            start_s = time.monotonic()
            for call in (log.publisher, partial(log.trim, 1)):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(call(), 0.1)
            assert time.monotonic() - start_s < 50


@in_event_loop
async def test_what_is_no_wait_is_refused() -> None:
    async with tm.aio.Log("memory:aio-no-wait") as log, await log.receiver("one") as receiver:
        for wait_s in (-1, float("nan"), True):
            with pytest.raises(tm.InvalidInput, match="wait_s"):
                await receiver.receive(wait_s)


@in_event_loop
async def test_a_log_in_a_folder_from_end_to_end(tmp_path: Path) -> None:
    async with tm.aio.Log(tmp_path / "log") as log:
        async with await log.publisher(producer="p") as out:
            assert (await out.send([b"a", b"b"], number=1)).last == 2
            assert (await out.send([b"a", b"b"], number=1)).last == 2
            assert out.last_number == 1
            task = out.send_soon(b"c")
            assert (await task).first == 3
            await out.send(pa.table({"value": [b"d"] * 3}))
            await out.flush()
        assert await log.ends() == (1, 7)
        assert (await log.read(2, rows_max=2)).rows() == [b"b", b"c"]
        async with await log.receiver("one", follow=False) as receiver:
            assert [batch.rows() async for batch in receiver] == [[b"a", b"b", b"c"] + [b"d"] * 3]
            receiver.ack(1, 4)
            assert await receiver.lag() == 2
        assert await log.consumers() == {"one": 4}
        assert await log.trim(before=10) == 5
        await log.remove_consumer("one")
        assert await log.trim(before=10) == 7
    with pytest.raises(tm.Closed):
        await log.ends()


@in_event_loop
async def test_sends_that_are_awaited_together_share_a_write(tmp_path: Path) -> None:
    shelf = shelf_of("aio-together")
    gate = threading.Event()

    def hold(lane: int, reservation: Reservation) -> None:
        gate.wait(60)

    shelf.hurdle = hold
    async with tm.aio.Log("memory:aio-together") as log, await log.publisher() as out:
        first = out.send_soon(b"first")
        await until(lambda: len(out._publisher._line._groups) == 1)
        rest = [out.send_soon(b"%d" % number) for number in range(200)]
        await until(lambda: len(out._publisher._line._pending) == 200)
        gate.set()
        receipts = await asyncio.gather(first, *rest)
    assert [receipt.first for receipt in receipts] == list(range(1, 202))
    assert len(shelf.frames) == 2


@in_event_loop
async def test_sends_are_numbered_in_the_order_of_their_calls(tmp_path: Path) -> None:
    """Also where a thread brings rows into columns, or waits for room."""
    async with tm.aio.Log(tmp_path / "log", sync="none") as log:
        out = await log.publisher(producer="loader", pending_bytes_max=2_000)
        sizes = [5_000, 1, 1, 1_500, 1, *[1] * 40]
        tasks = [
            out.send_soon([b"%d" % number + bytes(600)] * size, number=number)
            for number, size in enumerate(sizes)
        ]
        firsts = [receipt.first for receipt in await asyncio.gather(*tasks)]
        assert firsts == [1 + sum(sizes[:number]) for number in range(len(sizes))]
        await out.close()


@in_event_loop
async def test_a_send_cancelled_in_the_line_writes_nothing(tmp_path: Path) -> None:
    shelf = shelf_of("aio-cancel")
    gate = threading.Event()
    entered = threading.Event()

    def hold(lane: int, reservation: Reservation) -> None:
        entered.set()
        gate.wait(60)

    shelf.hurdle = hold
    async with tm.aio.Log("memory:aio-cancel") as log, await log.publisher(producer="p") as out:
        busy = out.send_soon(b"busy")
        await until(entered.is_set)
        waiting, numbered = out.send_soon(b"never"), out.send_soon(b"always", number=1)
        await until(lambda: len(out._publisher._line._pending) == 2)
        for task in (busy, waiting, numbered):
            task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.set()
        await out.flush()
        # What is being written, or numbered, is seen through.
        await asyncio.wait([busy, numbered])
        assert (await log.read()).rows() == [b"busy", b"always"]


@in_event_loop
async def test_a_close_that_is_cancelled_is_seen_through() -> None:
    shelf = shelf_of("aio-cancel-close")
    gate = threading.Event()

    def hold(lane: int, reservation: Reservation) -> None:
        gate.wait(60)

    shelf.hurdle = hold
    async with tm.aio.Log("memory:aio-cancel-close") as log:
        out = await log.publisher()
        sending = out.send_soon(b"a")
        await until(lambda: bool(out._publisher._line._orders))
        closing = asyncio.create_task(out.close())
        await until(lambda: out._publisher._line.is_closing)
        closing.cancel()
        await asyncio.sleep(0)
        assert not closing.done()
        gate.set()
        await closing
        assert (await sending).first == 1


@in_event_loop
async def test_what_a_receiver_was_used_for_failed_with_is_raised() -> None:
    shelf = shelf_of("aio-failing")
    async with tm.aio.Log("memory:aio-failing") as log, await log.publisher() as out:
        await out.send([b"a", b"b"])

        async def use() -> None:
            async with await log.receiver("one") as receiver:
                await receiver.receive()
                with shelf.mutex:
                    receiver.ack(1)
                    del shelf.consumers["one"]  # so that the ack cannot be stored
                raise KeyError

        with pytest.raises(KeyError):
            await use()


@in_event_loop
async def test_senders_wait_for_room_without_stopping_the_loop(tmp_path: Path) -> None:
    async with (
        tm.aio.Log(tmp_path / "log", sync="none") as log,
        await log.publisher(pending_bytes_max=10_000) as out,
    ):
        receipts = await asyncio.gather(*[out.send([bytes(3_000)]) for _ in range(100)])
    assert sorted(receipt.first for receipt in receipts) == list(range(1, 101))


@in_event_loop
async def test_a_receiver_waits_for_rows_and_ends_when_it_is_closed(tmp_path: Path) -> None:
    async with tm.aio.Log(tmp_path / "log") as log, await log.publisher() as out:
        receiver = await log.receiver("one")
        assert await receiver.receive(wait_s=0) is None
        assert await receiver.receive(wait_s=0.05) is None
        waiting = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        await out.send(b"a")
        batch = await waiting
        assert batch is not None
        assert batch.rows() == [b"a"]
        batch.ack()
        await receiver.flush()
        assert await log.consumers() == {"one": 1}
        loop = asyncio.ensure_future(_all(receiver))
        await asyncio.sleep(0)
        await receiver.close()
        assert await loop == []
        with pytest.raises(tm.Closed):
            await receiver.receive()


async def _all(receiver: tm.aio.Receiver) -> list[list[bytes]]:
    return [batch.rows() async for batch in receiver]


@in_event_loop
async def test_rows_that_are_there_are_given_however_short_the_wait(tmp_path: Path) -> None:
    async with tm.aio.Log(tmp_path / "log") as log, await log.publisher() as out:
        await out.send(b"a")
        receiver = await log.receiver("one")
        batch = await receiver.receive(wait_s=0)
        assert batch is not None
        assert batch.rows() == [b"a"]


@in_event_loop
async def test_a_cancelled_wait_takes_nothing(tmp_path: Path) -> None:
    async with tm.aio.Log(tmp_path / "log") as log, await log.publisher() as out:
        receiver = await log.receiver("one")
        waiting = asyncio.ensure_future(receiver.receive())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await out.send(b"a")
        batch = await receiver.receive()
        assert batch is not None
        assert batch.rows() == [b"a"]


@in_event_loop
async def test_a_log_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no log")
    log = tm.aio.Log(tmp_path / "file")
    with pytest.raises(tm.NotAQueue):
        await log.open()
    with pytest.raises(tm.Closed):
        await log.ends()
    await log.close()
