"""Counters for asyncio: what waits for a peer or a disk is awaited without holding the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.aio.calling import call_in
from tidemill.aio.twin import Twin
from tidemill.clock import wait_seconds
from tidemill.counters import Replica
from tidemill.counters import counters as plain
from tidemill.counters.replication.traffic import PeerTraffic
from tidemill.errors import TidemillError


class Counters(Twin[plain.Counters]):
    """The twin of `tm.Counters`: the same options and methods, awaited.

    Changes and looks are work of a microsecond in memory, and are done at once; whatever may wait
    runs in a thread.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Counters("node-1") as counters:
    ...         await counters.upsert("visits", 3)
    ...         return await counters.get("visits")
    >>> asyncio.run(main())
    3
    """

    SNAPSHOT = plain.Counters.SNAPSHOT

    def __init__(self, node: str, **options: Any) -> None:
        super().__init__(lambda: plain.Counters(node, **options))
        self._node = node

    @property
    def node(self) -> str:
        """The id of this node."""
        return self._node

    @property
    def address(self) -> str:
        """Where peers and clients reach this node."""
        return self._opened().address

    @property
    def peers(self) -> list[str]:
        """The addresses of the peers that this node calls."""
        return self._opened().peers

    @property
    def halted(self) -> TidemillError | None:
        """Why this node has stopped; None while it goes on."""
        return self._opened().halted

    async def wait_halted(self, timeout_s: float | None = None) -> TidemillError | None:
        """Wait until this node has stopped by itself, or was closed, or for so long; why it
        stopped, if it did.
        """
        counters = self._opened()
        wait_s = None if timeout_s is None else wait_seconds(timeout_s, what="timeout_s")
        over = asyncio.Event()
        unlisten = counters.over.listen(partial(call_in, asyncio.get_running_loop(), over.set))
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(over.wait(), wait_s)
        finally:
            unlisten()
        return counters.halted

    async def upsert(self, name: str, delta: int = 1) -> int:
        """Add to a counter, and make it if it is not there; returns its new value."""
        return self._opened().upsert(name, delta)

    async def upsert_many(
        self,
        names: Sequence[str] | pa.Array,
        deltas: int | Sequence[int] | np.ndarray | pa.Array = 1,
    ) -> np.ndarray:
        """Add to many counters, all or none; returns their new values."""
        return await self._run(self._opened().upsert_many, names, deltas)

    async def get(self, name: str) -> int:
        """The value of a counter."""
        return self._opened().get(name)

    async def update_ttl(self, name: str, when: datetime | None) -> None:
        """Let a counter expire at a time, with its zone; None: never."""
        self._opened().update_ttl(name, when)

    async def delete(self, name: str) -> None:
        """Delete a counter, on every node."""
        self._opened().delete(name)

    async def all(self) -> tuple[dict[str, int], dict[str, int]]:
        """Every counter and its value: those that live, and those that have expired."""
        return await self._run(self._opened().all)

    async def parts(self, name: str) -> dict[Replica, int]:
        """What each node has counted."""
        return self._opened().parts(name)

    async def expiry(self, name: str) -> datetime | None:
        """When a counter expires; None if it does not."""
        return self._opened().expiry(name)

    async def snapshot(self) -> pa.RecordBatch:
        """All counters that live as columns."""
        return await self._run(self._opened().snapshot)

    async def add_peer(self, address: str) -> None:
        """Exchange with one node more, from now on."""
        await self._run(self._opened().add_peer, address)

    async def remove_peer(self, address: str) -> None:
        """Call a node no more."""
        await self._run(self._opened().remove_peer, address)

    async def remove_node(self, node: str) -> None:
        """Declare a node gone for good."""
        await self._run(self._opened().remove_node, node)

    async def sync(self, timeout_s: float = 10.0) -> dict[str, str]:
        """Exchange with every peer now; how that went, by address."""
        return await self._run(self._opened().sync, timeout_s)

    async def save(self) -> None:
        """Have everything on disk now."""
        await self._run(self._opened().save)

    def metrics(self) -> Mapping[str, PeerTraffic]:
        """What went between this node and its peers so far, by their ids."""
        return self._opened().metrics()

    def __repr__(self) -> str:
        return f"<aio.Counters {self._node!r}>"
