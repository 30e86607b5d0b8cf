"""A log on a server from asyncio: the same rows, in order."""

from __future__ import annotations

import asyncio

import pytest

import tidemill as tm


def test_sends_and_receives_of_many_tasks(url: str) -> None:
    async def main() -> None:
        async with tm.aio.Log(url, parallelism=2) as log:
            out = await log.publisher()
            receiver = await log.receiver("billing")
            received: list[bytes] = []

            async def receive() -> None:
                async for batch in receiver:
                    received.extend(batch.rows())
                    batch.ack()
                    if len(received) == 300:
                        return

            receiving = asyncio.create_task(receive())
            receipts = await asyncio.gather(*[out.send(b"%d" % number) for number in range(300)])
            assert sorted(receipt.first for receipt in receipts) == list(range(1, 301))
            await asyncio.wait_for(receiving, 30)
            rows = {receipt.first: b"%d" % number for number, receipt in enumerate(receipts)}
            assert received == [rows[seq] for seq in range(1, 301)]
            await receiver.flush()
            assert await log.consumers() == {"billing": 300}

    asyncio.run(main())


def test_a_receiver_that_waits_hears_that_it_was_overtaken(url: str) -> None:
    async def main() -> None:
        async with tm.aio.Log(url, parallelism=1) as log:
            old = await log.receiver("billing")
            waiting = asyncio.create_task(old.receive())
            assert await old.receive(wait_s=0) is None
            await log.receiver("billing")
            with pytest.raises(tm.Fenced):
                await asyncio.wait_for(waiting, 5)

    asyncio.run(main())
