"""Batches against peers: Arrow in and out, and Python objects in and out.

A peer that is given Arrow has to turn it into rows and the rows back into Arrow, which is part of
its time as it would be of its user's. A peer for which 2,000 items take seconds is given fewer at a
time; its rate is per item all the same.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pyarrow as pa

from benchmarks import data
from benchmarks.ours import Form, Ours, Sync
from benchmarks.peers import Peer, PersistQueueOfBatches, is_installed, open_peers
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, Medians, interleave
from benchmarks.settings import ITEMS_PER_BATCH, Settings

_TARGET: dict[Form, float] = {"arrow": 50.0, "objects": 5.0}
_FEW_ITEMS = 100
_BATCH_S_MAX = 0.5  # a peer that takes longer for 2,000 items is given a few at a time


class _PeerTurns:
    """Lets a peer take turns."""

    def __init__(self, peer: Peer, form: Form, *, batches: int) -> None:
        self._peer = peer
        self._form = form
        self._batches = batches  # per turn
        self._next_key = 0
        self.name = peer.name
        self._items = _FEW_ITEMS
        # The better of two, since the first one also warms up.
        item_s = min(sum(self.turn().values()) for _ in range(2))
        self._items = ITEMS_PER_BATCH if item_s * ITEMS_PER_BATCH < _BATCH_S_MAX else _FEW_ITEMS
        if self._items != ITEMS_PER_BATCH:
            say(f"{self.name} is given {self._items} items at a time")

    @property
    def items(self) -> int:
        return self._items

    def turn(self) -> dict[str, float]:
        count = self._items
        rows = []
        for _ in range(self._batches):
            rows.append(data.ascending(self._next_key, count))
            self._next_key += count
        given = [data.pairs(batch) for batch in rows]
        peer, is_arrow = self._peer, self._form == "arrow"
        start = time.perf_counter()
        if is_arrow:
            for batch in rows:
                peer.push(data.pairs(batch))
        else:
            for pairs in given:
                peer.push(pairs)
        middle = time.perf_counter()
        taken: list[object] = []
        for _ in range(self._batches):
            popped = peer.pop(count)
            taken.append(data.to_arrow(popped) if is_arrow else popped)
        end = time.perf_counter()
        if taken != (rows if is_arrow else given):
            raise RuntimeError(f"{self.name} gave back other items than were pushed")
        items = count * self._batches
        return {"push": (middle - start) / items, "pop": (end - middle) / items}

    def close(self) -> None:
        self._peer.close()


class _WholeBatches:
    """persist-queue with a batch as one item: for information, since it is no queue of items."""

    def __init__(self, folder: Path, form: Form, *, sync: bool, batches: int) -> None:
        self._queue = PersistQueueOfBatches(folder, sync)
        self._form = form
        self._batches = batches
        self.name = self._queue.name

    def turn(self) -> dict[str, float]:
        rows = [data.ascending(at * ITEMS_PER_BATCH) for at in range(self._batches)]
        given = [data.pairs(batch) for batch in rows]
        schema, is_arrow = rows[0].schema, self._form == "arrow"
        start = time.perf_counter()
        for batch, pairs in zip(rows, given, strict=True):
            self._queue.push(batch.serialize().to_pybytes() if is_arrow else pairs)
        middle = time.perf_counter()
        for _ in range(self._batches):
            popped = self._queue.pop()
            if is_arrow:
                pa.ipc.read_record_batch(pa.py_buffer(popped), schema)
        end = time.perf_counter()
        items = self._batches * ITEMS_PER_BATCH
        return {"push": (middle - start) / items, "pop": (end - middle) / items}

    def close(self) -> None:
        self._queue.close()


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    forms: tuple[Form, ...] = ("arrow", "objects")
    syncs: tuple[Sync, ...] = ("none", "full")
    for form in forms:
        for sync in syncs:
            with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
                results += _run(Path(folder), settings, form, sync)
    return results


def _run(folder: Path, settings: Settings, form: Form, sync: Sync) -> list[Result]:
    what = f"{'Arrow' if form == 'arrow' else 'Python objects'} in and out, sync {sync}"
    batches = settings.batches(sync)
    peer_batches = 1 if settings.quick else 5
    peers = [
        _PeerTurns(peer, form, batches=peer_batches)
        for peer in open_peers(folder, sync=sync == "full")
    ]
    contestants: list[Contestant] = [
        Ours(folder / "ours", sync=sync, batches=batches, form=form),
        *peers,
    ]
    if is_installed("persistqueue"):
        contestants.append(
            _WholeBatches(folder / "whole", form, sync=sync == "full", batches=peer_batches)
        )
    medians = interleave(what, contestants, settings.rounds)
    conditions = {f"{peer.name} is given": f"{peer.items} items at a time" for peer in peers}
    return _judge(what, medians, [peer.name for peer in peers], _TARGET[form], conditions)


def _judge(
    what: str, medians: Medians, peers: list[str], target: float, conditions: dict[str, str]
) -> list[Result]:
    """In and out against the best peer carries the target; all else is information."""
    both = {name: 1 / (metrics["push"] + metrics["pop"]) for name, metrics in medians.items()}
    best = max(peers, key=lambda name: both[name])
    results = []
    for name in sorted(medians.keys() - {"tidemill"}, key=lambda name: -both[name]):
        is_best = name == best
        results.append(
            Result(
                what,
                both["tidemill"],
                "items/s",
                both[name],
                f"{name}, the best" if is_best else name,
                Target("at least", target) if is_best else None,
                note="" if name in peers else "whole batches, neither items nor order: no target",
                conditions=conditions,
            )
        )
    for metric in ("push", "pop"):
        fastest = min(peers, key=lambda name: medians[name][metric])
        ours, theirs = medians["tidemill"][metric], medians[fastest][metric]
        results.append(
            Result(
                f"{what}: {metric} alone", 1 / ours, "items/s", 1 / theirs, f"{fastest}, the best"
            )
        )
    return results
