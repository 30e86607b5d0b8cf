"""One item at a time, durable: 1 thread against the floor, 32 threads against peers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import tidemill as tm
from benchmarks.bare_group import BareGroup
from benchmarks.data import random_bytes
from benchmarks.peers import Peer, open_peers
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import VALUE_BYTES, Settings
from benchmarks.together import together
from tidemill.gateway.disk_floor import Floor

_THREADS = 32
_FLOOR_BYTES = 512  # a sector


class _Ours:
    """Our queue behind the face of a peer, for single items."""

    name = "tidemill"

    def __init__(self, folder: Path) -> None:
        self._queue = tm.PriorityQueue(folder, sync="full")

    def push_one(self, row: tuple[int, bytes]) -> None:
        self._queue.push([row])

    def pop_one(self) -> tuple[int, bytes]:
        row: tuple[int, bytes] = self._queue.pop().rows()[0]
        return row

    def close(self) -> None:
        self._queue.close()


class _Turns:
    """So many threads push their items one by one, then pop as many."""

    def __init__(self, queue: Peer | _Ours, *, threads: int, items: int) -> None:
        self._queue = queue
        self._threads = threads
        self._items = items  # of each thread
        self._next_key = 0
        self.name = queue.name

    def turn(self) -> dict[str, float]:
        shares = []
        for _ in range(self._threads):
            keys = range(self._next_key, self._next_key + self._items)
            shares.append([(key, random_bytes(VALUE_BYTES)) for key in keys])
            self._next_key += self._items
        popped: list[list[tuple[int, bytes]]] = [[] for _ in shares]
        push_one, pop_one = self._queue.push_one, self._queue.pop_one

        def push(number: int) -> None:
            for row in shares[number]:
                push_one(row)

        def pop(number: int) -> None:
            for _ in range(self._items):
                popped[number].append(pop_one())

        push_s, pop_s = together(push, self._threads), together(pop, self._threads)
        if sorted(row for rows in popped for row in rows) != sorted(
            row for rows in shares for row in rows
        ):
            raise RuntimeError(f"{self.name} gave back other items than were pushed")
        items = self._threads * self._items
        return {"push": push_s / items, "pop": pop_s / items}

    def close(self) -> None:
        self._queue.close()


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        results = _one_thread(Path(folder), settings)
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        return results + _many_threads(Path(folder), settings)


def _one_thread(folder: Path, settings: Settings) -> list[Result]:
    items = 30 if settings.quick else 300
    contestants: list[Contestant] = [
        _Turns(_Ours(folder / "ours"), threads=1, items=items),
        Floor(folder / "floor", write_bytes=_FLOOR_BYTES, writes=items, sync=True),
    ]
    medians = interleave("one item at a time, 1 thread", contestants, settings.rounds)
    floors = {
        "push": f"floor: pwrite of {_FLOOR_BYTES} bytes + fdatasync",
        "pop": "floor: pread + xxh3 + 128 bytes persisted",
    }
    return [
        Result(
            f"one item at a time, durable, 1 thread: {metric}",
            1 / medians["tidemill"][metric],
            "items/s",
            1 / medians["floor"][metric],
            name,
            Target("at least", 0.70),
        )
        for metric, name in floors.items()
    ]


def _many_threads(folder: Path, settings: Settings) -> list[Result]:
    ours_items, peer_items = (5, 2) if settings.quick else (200, 40)
    contestants: list[Contestant] = [
        _Turns(_Ours(folder / "ours"), threads=_THREADS, items=ours_items),
        *(
            _Turns(peer, threads=_THREADS, items=peer_items)
            for peer in open_peers(folder, sync=True)
        ),
        BareGroup(folder / "bare", threads=_THREADS, items=ours_items),
    ]
    what = f"one item at a time, durable, {_THREADS} threads"
    medians = interleave(what, contestants, settings.rounds)
    ours, bare = medians.pop("tidemill"), medians.pop(BareGroup.name)
    results = []
    for metric in ("push", "pop"):
        by_speed = sorted(medians, key=lambda name: medians[name][metric])
        for name in by_speed:
            is_best = name == by_speed[0]
            results.append(
                Result(
                    f"{what}: {metric}",
                    1 / ours[metric],
                    "items/s",
                    1 / medians[name][metric],
                    f"{name}, the best" if is_best else name,
                    Target("at least", 5.0) if is_best and metric == "push" else None,
                )
            )
    # For information: what a queue in Python can reach at most.
    best = min(medians, key=lambda name: medians[name]["push"])
    results.append(
        Result(
            f"{what}: push, {BareGroup.name}",
            1 / bare["push"],
            "items/s",
            1 / medians[best]["push"],
            f"{best}, the best",
        )
    )
    return results
