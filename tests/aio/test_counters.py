"""Counters under asyncio."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

import tidemill as tm


def test_two_nodes_agree_under_one_loop(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            tm.aio.Counters("node-1", listen="127.0.0.1:0", path=tmp_path / "one") as one,
            tm.aio.Counters("node-2", peers=[one.address], sync_ms=3_600_000) as two,
        ):
            assert await one.upsert("visits", 100) == 100
            assert (await two.upsert_many(["visits", "other"], [70, 1])).tolist() == [70, 1]
            assert await two.sync() == {one.address: "ok"}
            assert await one.get("visits") == await two.get("visits") == 170
            assert {by.node for by in await one.parts("visits")} == {"node-1", "node-2"}
            assert await one.all() == ({"visits": 170, "other": 1}, {})
            assert (await two.snapshot()).num_rows == 2
            await two.update_ttl("other", None)
            assert await two.expiry("other") is None
            await two.delete("other")
            assert two.metrics()["node-1"].rounds["ok"] >= 1
            await two.remove_peer(two.peers[0])
            await two.add_peer(one.address)
            await one.save()
            assert (one.node, repr(one)) == ("node-1", "<aio.Counters 'node-1'>")

    asyncio.run(main())


def test_a_handle_is_opened_and_closed_once(tmp_path: Path) -> None:
    async def main() -> None:
        counters = tm.aio.Counters("node-1", path=tmp_path / "one")
        with pytest.raises(tm.Closed, match="is not open"):
            await counters.upsert("visits")
        await counters.close()
        async with counters:
            await counters.upsert("visits", 3)
            with pytest.raises(tm.Closed, match="was opened before"):
                await counters.open()
        await counters.close()
        for call in (counters.get("visits"), counters.all(), counters.sync()):
            with pytest.raises(tm.Closed):
                await call
        async with tm.aio.Counters("node-1", path=tmp_path / "one") as again:
            assert await again.get("visits") == 3
        with pytest.raises(tm.InvalidName):
            await tm.aio.Counters("no name").open()

    asyncio.run(main())


def test_the_loop_goes_on_while_a_peer_is_waited_for() -> None:
    async def main() -> None:
        # Connections are taken by the system, and nobody ever answers on them.
        silent = socket.create_server(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        options = {"peers": [f"127.0.0.1:{port}"], "timeout_ms": 2_000, "sync_ms": 3_600_000}
        async with tm.aio.Counters("node-1", **options) as counters:
            waiting = asyncio.ensure_future(counters.sync())
            steps = 0
            while not waiting.done():
                await asyncio.sleep(0.01)
                steps += 1
            assert await waiting == {f"127.0.0.1:{port}": "Unavailable"}
            assert steps > 5
        silent.close()

    asyncio.run(main())


def test_whoever_waits_for_a_node_to_stop_hears_why_and_holds_no_thread(tmp_path: Path) -> None:
    async def main() -> None:
        async with tm.aio.Counters("node-1", path=tmp_path, save_ms=10) as counters:
            await counters.upsert("visits")
            await counters.save()
            assert await counters.wait_halted(0.01) is None
            waiting = [asyncio.ensure_future(counters.wait_halted()) for _ in range(100)]
            assert await counters.sync() == {}, "no thread is left for others"
            waiting.pop().cancel()
            with tm.Log(tmp_path) as log, log.publisher():
                await counters.upsert("visits")
                for halted in await asyncio.gather(*waiting):
                    assert isinstance(halted, tm.Fenced)
                assert isinstance(counters.halted, tm.Fenced)
                assert isinstance(await counters.wait_halted(), tm.Fenced), "also afterwards"
                with pytest.raises(tm.Fenced):
                    await counters.close()

    with pytest.raises(tm.Fenced):
        asyncio.run(main())


def test_closing_ends_the_wait_for_a_node_to_stop(tmp_path: Path) -> None:
    async def main() -> None:
        counters = await tm.aio.Counters("node-1", path=tmp_path).open()
        assert counters.halted is None
        waiting = asyncio.ensure_future(counters.wait_halted())
        await asyncio.sleep(0)
        await counters.close()
        assert await waiting is None

    asyncio.run(main())
