"""Batches of 2,000 items of 40 bytes against the floor: ascending and shuffled, synced or not."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bare import Bare
from benchmarks.ours import Ours, Sync, frame_bytes
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import ITEMS_PER_BATCH, Settings
from tidemill.gateway.disk_floor import Floor

_PUSH_TARGET = {"none": 0.50, "full": 0.70}
_POP_TARGET = 0.45


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    syncs: tuple[Sync, ...] = ("none", "full")
    for sync in syncs:
        for order in ("ascending", "shuffled"):
            with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
                results += _run(Path(folder), settings, sync, order)
    return results


def _run(folder: Path, settings: Settings, sync: Sync, order: str) -> list[Result]:
    batches = settings.batches(sync)
    in_order = order == "ascending"
    write_bytes = frame_bytes(folder)
    contestants: list[Contestant] = [
        Ours(folder / "ours", sync=sync, batches=batches, in_order=in_order),
        Floor(
            folder / "floor",
            write_bytes=write_bytes,
            writes=batches,
            items=ITEMS_PER_BATCH,
            sync=sync == "full",
            in_order=in_order,
        ),
    ]
    has_bare = in_order and sync == "none"
    if has_bare:
        contestants.append(Bare(folder / "bare", batches=batches))
    medians = interleave(f"batches, {order}, sync {sync}", contestants, settings.rounds)
    ours, floor = medians["tidemill"], medians["floor"]
    conditions = {"operation": f"{ITEMS_PER_BATCH} items, {write_bytes} bytes; {batches} per round"}

    def result(
        what: str, metric: str, floor_metric: str, name: str, target: float | None
    ) -> Result:
        return Result(
            f"batches, {order}, sync {sync}: {what}",
            1 / ours[metric],
            "items/s",
            1 / floor[floor_metric],
            name,
            None if target is None else Target("at least", target),
            conditions=conditions,
        )

    synced = " + fdatasync" if sync == "full" else ""
    persisting = " + 128 bytes persisted" if sync == "full" else ""
    results = [
        result("push", "push", "push", f"floor: pwrite{synced}", _PUSH_TARGET[sync]),
        result("pop", "pop", "pop", f"floor: pread + xxh3{persisting}", _POP_TARGET),
    ]
    if has_bare:
        # For information: what a queue in Python can reach at most.
        bare = medians["bare calls"]
        for what in ("push", "pop"):
            name = f"batches, {order}, sync {sync}: {what}"
            calls = "the bare calls of one"
            results.append(
                Result(
                    name, 1 / ours[what], "items/s", 1 / bare[what], calls, conditions=conditions
                )
            )
            results.append(
                Result(
                    f"{name}, bare calls",
                    1 / bare[what],
                    "items/s",
                    1 / floor[what],
                    "floor",
                    conditions=conditions,
                )
            )
    if sync == "full":
        # For information: no durable pop can match a floor that persists nothing.
        results.append(
            result("pop", "pop", "pop without persisting", "pread + xxh3, nothing persisted", None)
        )
    return results
