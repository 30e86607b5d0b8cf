"""Growth: what a push and pop of 2,000 cost when ever more is queued, and what opening costs.

Each size is held by a process of its own; all are filled first and then asked round by round, so
that they see the same machine.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.child import Child
from benchmarks.growth_child import BUCKETS
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import settle
from benchmarks.settings import ITEMS_PER_BATCH, Settings
from benchmarks.workloads import opening

_CHILD = "benchmarks.growth_child"
_SPREAD_TARGET = {"ascending": Target("at most", 1.5), "random": Target("at most", 4.0)}
_MEMORY_TARGET = Target("below", 200, of="ours")
# What a queue may take on disk while it is filled and rewritten, with room to spare.
_DISK_BYTES_PER_ITEM = {"ascending": 100, "random": 250}
_MEMORY_NOTE = "VmHWM of a fresh process, Python and filling included"


@dataclass(slots=True)
class _Held:
    """A queue at one size."""

    items: int
    folder: Path
    child: Child
    push_s: list[float] = field(default_factory=list)
    pop_s: list[float] = field(default_factory=list)
    peak_mb: float = 0.0
    next_key: int = 0


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    for order in ("ascending", "random"):
        with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
            results += _run(Path(folder), settings, order)
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        return results + _single_items(Path(folder), settings)


def _run(folder: Path, settings: Settings, order: str) -> list[Result]:
    operations = 20 if settings.quick else 200
    results: list[Result] = []
    held: list[_Held] = []
    with contextlib.ExitStack() as stack:
        for items in settings.scales:
            missing = _missing_disk(folder, items, order)
            if missing:
                say(f"growth, {order}, {items} items: skipped, {missing}")
                name = f"growth, {order}, {_power(items)} items"
                results.append(Result(name, None, "µs", target=_MEMORY_TARGET, note=missing))
            else:
                held.append(stack.enter_context(_hold(folder, items, order, settings)))
        for number in range(settings.rounds):
            say(f"growth, {order}: round {number + 1} of {settings.rounds}")
            first = number % max(len(held), 1)
            for one in [*held[first:], *held[:first]]:
                settle()
                answer = one.child.ask("round", operations=operations)
                one.push_s.append(answer["push_s"])
                one.pop_s.append(answer["pop_s"])
        for one in held:
            closed = one.child.ask("close")
            one.peak_mb, one.next_key = closed["peak_mb"], closed["next_key"]
    results += _judge(held, order)
    if held:
        largest = held[-1]
        results += opening.measure(
            largest.folder,
            f"{_power(largest.items)} items, {order}",
            _CHILD,
            {"order": order, "next_key": largest.next_key},
            rounds=settings.rounds,
        )
    return results


@contextlib.contextmanager
def _hold(folder: Path, items: int, order: str, settings: Settings) -> Iterator[_Held]:
    path = folder / str(items)
    say(f"growth, {order}: filling a queue with {items} items")
    with Child(_CHILD) as child:
        child.ask("open", folder=str(path), order=order)
        filled = child.ask("fill", items=items)
        if filled["items"] != items:
            raise RuntimeError(f"{items} items were pushed, but {filled['items']} are there")
        quiet = child.ask("quieten", still_s=0.2 if settings.quick else 3.0)
        say(
            f"  filled in {filled['fill_s']:.1f} s, upkeep quiet after {quiet['waited_s']:.1f} s, "
            f"{quiet['disk_bytes'] / 1e6:.0f} MB on disk"
        )
        yield _Held(items, path, child)


def _judge(held: list[_Held], order: str) -> list[Result]:
    spread = "in one bucket" if order == "ascending" else f"over {BUCKETS} buckets"
    conditions = {"operation": f"{ITEMS_PER_BATCH} items, {order} keys {spread}, sync none"}
    results = []
    for metric in ("push", "pop"):
        costs = {one.items: median(getattr(one, f"{metric}_s")) * 1e6 for one in held}
        results += [
            Result(
                f"growth, {order}: {metric} at {_power(items)} items",
                cost,
                "µs",
                conditions=conditions,
            )
            for items, cost in costs.items()
        ]
        if len(costs) > 1:
            dearest, cheapest = max(costs, key=costs.__getitem__), min(costs, key=costs.__getitem__)
            results.append(
                Result(
                    f"growth, {order}: {metric}, dearest at {_power(dearest)} items",
                    costs[dearest],
                    "µs",
                    costs[cheapest],
                    f"cheapest, at {_power(cheapest)} items",
                    _SPREAD_TARGET[order],
                    conditions=conditions,
                )
            )
    results += [
        Result(
            f"growth, {order}: peak resident memory at {_power(one.items)} items",
            one.peak_mb,
            "MB",
            target=_MEMORY_TARGET,
            conditions={**conditions, "memory": _MEMORY_NOTE},
        )
        for one in held
    ]
    return results


def _single_items(folder: Path, settings: Settings) -> list[Result]:
    items = 20_000 if settings.quick else 10**7
    what = f"growth, {items:,} pushes of a single item"
    missing = _missing_disk(folder, items, "single")
    if missing:
        say(f"{what}: skipped, {missing}")
        return [Result(what, None, "MB", target=_MEMORY_TARGET, note=missing)]
    say(what)
    with Child(_CHILD) as child:
        child.ask("open", folder=str(folder / "ones"), order="ascending")
        answer = child.ask("push_ones", items=items)
        closed = child.ask("close")
    if answer["items"] != items:
        raise RuntimeError(f"{items} items were pushed, but {answer['items']} are there")
    conditions = {"operation": "1 item, ascending keys, sync none", "memory": _MEMORY_NOTE}
    return [
        Result(f"{what}: push", answer["push_s"] * 1e6, "µs", conditions=conditions),
        Result(
            f"{what}: peak resident memory",
            max(answer["peak_mb"], closed["peak_mb"]),
            "MB",
            target=_MEMORY_TARGET,
            conditions=conditions,
        ),
    ]


def _missing_disk(folder: Path, items: int, order: str) -> str:
    """What is missing, in words; nothing if there is room."""
    # A single item takes a record of its own until the tiny frames are merged.
    needed = items * _DISK_BYTES_PER_ITEM.get(order, 1_500)
    free = shutil.disk_usage(folder).free
    if free >= needed:
        return ""
    return f"needs {needed / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free"


def _power(items: int) -> str:
    exponent = len(str(items)) - 1
    return f"10^{exponent}" if items == 10**exponent else f"{items:,}"
