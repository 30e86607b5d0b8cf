"""Replicated counters: updates per second on one node, bytes between nodes, and how soon all agree.

Next to them Redis INCRBY with pipelining: one server for all, where ours is a part of the program.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pyarrow as pa

import tidemill as tm
from benchmarks.child import Child
from benchmarks.peers import is_installed
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from tests.services.redis import Redis

_NODES = 3
_SYNC_MS = 100
_MANY = 10_000  # names of one call
_NEVER_MS = 3_600_000


class _OneByOne:
    """A call for each update."""

    name = "upsert, one by one"

    def __init__(self, folder: Path, names: list[str], updates: int) -> None:
        self._counters = tm.Counters("node-1", path=folder)
        self._names = names
        self._updates = updates

    def turn(self) -> dict[str, float]:
        upsert, names = self._counters.upsert, self._names
        start = time.perf_counter()
        for _ in range(self._updates // len(names)):
            for name in names:
                upsert(name, 1)
        return {"update": (time.perf_counter() - start) / self._updates}

    def close(self) -> None:
        self._counters.close()


class _Many:
    """A call for `_MANY` of them."""

    def __init__(
        self, name: str, folder: Path, names: Sequence[str] | pa.Array, updates: int
    ) -> None:
        self.name = name
        self._counters = tm.Counters("node-1", path=folder)
        self._names = names
        self._updates = updates

    def turn(self) -> dict[str, float]:
        start = time.perf_counter()
        for _ in range(self._updates // len(self._names)):
            self._counters.upsert_many(self._names, 1)
        return {"update": (time.perf_counter() - start) / self._updates}

    def close(self) -> None:
        self._counters.close()


def run(settings: Settings) -> list[Result]:
    return _updates(settings) + _convergence(settings)


def _updates(settings: Settings) -> list[Result]:
    updates = 20_000 if settings.quick else 300_000
    many = [f"counter-{number}" for number in range(_MANY)]
    few = many[:100]
    size = 2_000 if settings.quick else 100_000
    each = [f"counter-{number}" for number in range(size)]
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as scratch:
        folder = Path(scratch)
        one = _OneByOne(folder / "one", few, updates)
        lists = _Many("upsert_many, lists", folder / "lists", many, 10 * updates)
        arrow = _Many("upsert_many, Arrow", folder / "arrow", pa.array(many), 10 * updates)
        contestants: list[Contestant] = [one, lists, arrow]
        peer, peer_bytes = "", {}
        reason = Redis.missing()
        if reason is None and not is_installed("redis"):
            reason = "its client redis is not installed"
        if reason is None:
            from benchmarks.peers.redis_counters import RedisCounters

            redis = RedisCounters(folder / "redis", few, updates)
            peer = redis.name
            peer_bytes = {
                "one counter": redis.bytes_of(few[:1], size),
                f"{size:,} counters": redis.bytes_of(each, size),
            }
            contestants.append(redis)
        else:
            say(f"Redis is left out: {reason}")
        medians = interleave("counters", contestants, settings.rounds)
        conditions = {"durability": "on disk within 100 ms; Redis: within a second"}
        for contestant, least in ((one, 300_000), (lists, 1_000_000), (arrow, 1_000_000)):
            results.append(
                Result(
                    f"counters: {contestant.name}",
                    1 / medians[contestant.name]["update"],
                    "updates/s",
                    1 / medians[peer]["update"] if peer else None,
                    peer,
                    Target("at least", least, of="ours"),
                    note="" if reason is None else reason,
                    conditions=conditions,
                )
            )
        ours = {"one counter": _wire(few[:1], size), f"{size:,} counters": _wire(each, size)}
    return results + [
        Result(
            f"counters: bytes for {size:,} updates of {what}",
            float(bytes_sent),
            "bytes",
            float(peer_bytes[what]) if peer_bytes else None,
            peer,
        )
        for what, bytes_sent in ours.items()
    ]


def _wire(names: list[str], updates: int) -> int:
    """What one node sends to another for so many updates between two exchanges."""
    with (
        tm.Counters("node-1", listen="127.0.0.1:0", sync_ms=_NEVER_MS) as one,
        tm.Counters(
            "node-2", peers=[one.address], sync_ms=_NEVER_MS, buffer_max=10 * updates
        ) as two,
    ):
        two.sync()
        before = two.metrics()["node-1"].bytes_sent
        for _ in range(updates // len(names)):
            two.upsert_many(names, 1)
        two.sync()
        if one.all()[0] != two.all()[0]:
            raise RuntimeError("the nodes do not agree")
        return two.metrics()["node-1"].bytes_sent - before


def _convergence(settings: Settings) -> list[Result]:
    """From the end of the last update until the last node knows of all of them."""
    counters = 2_000 if settings.quick else 100_000
    took_s: list[float] = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as scratch, ExitStack() as stack:
        children: list[Child] = []
        addresses: list[str] = []
        for number in range(_NODES):
            child = stack.enter_context(Child("benchmarks.counters_child"))
            opened = child.ask(
                "open",
                node=f"node-{number}",
                path=f"{scratch}/{number}",
                peers=addresses,
                sync_ms=_SYNC_MS,
            )
            addresses.append(opened["address"])
            children.append(child)
        for number in range(1, 1 + settings.rounds):
            say(f"counters, {_NODES} nodes: round {number} of {settings.rounds}")
            done_s = max(_together(children, "count", "done_s", counters=counters))
            known = _together(children, "wait", "knew_s", counters=counters, each=number * _NODES)
            took_s.append(max(known) - done_s)
    return [
        Result(
            f"counters: {_NODES} nodes agree after {counters:,} updates on each",
            median(took_s),
            "s",
            target=Target("below", 1.0, of="ours"),
            conditions={"operation": f"{counters:,} counters, an exchange every {_SYNC_MS} ms"},
        )
    ]


def _together(children: list[Child], task: str, what: str, **arguments: int) -> list[float]:
    for child in children:
        child.tell(task, **arguments)
    return [float(child.answer()[what]) for child in children]
