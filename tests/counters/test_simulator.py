"""Clusters that lose, double and reorder messages, restart and meet again: see `simulator`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest

from tests.counters.simulator import Cluster

SCHEDULES = 100_000
LONG_SCHEDULES = 1_500
READER_SCHEDULES = 1_500
BLOCKS = 8  # items of the suite, so that its workers share them

# What has to have happened in a block of that size, or the simulator went soft.
FAULTS = (
    "clock jumps",
    "counters that started again",
    "dead parts forgotten",
    "deletes",
    "kills before a save",
    "messages cut off",
    "messages lost",
    "messages of removed nodes",
    "messages out of order",
    "messages that came twice",
    "nodes added",
    "nodes gone for good",
    "nodes removed",
    "nodes removed that did not hear of it",
    "partitions",
    "removed nodes that came back",
    "restarts with state",
    "restarts without state",
    "schedules with an exact sum",
    "snapshots",
    "TTLs",
)

# Long ones that broke a rule once: a stranger that was not told of a delete, parts of removed nodes
# that came back, TTLs that did, by a stranger or from the disk, and what was never forgotten.
FOUND = (
    *(5001345, 5001435, 7004171, 7004540, 7004555, 7005203, 7007318, 7007328, 7007375, 7007576),
    *(7007934, 7008668, 7008784, 7010690, 7011072, 7011242, 7011440, 7012094, 7013985, 7014058),
    *(7014196, 7014275, 7014800, 9003559, 9005896, 16005415, 16013069),
)

Tally = Callable[[str, int], None]


def simulate(seeds: range) -> Counter[str]:
    """Run schedules; a violation names its seed, for `Cluster(seed, Counter()).run()`."""
    seen: Counter[str] = Counter()
    for seed in seeds:
        Cluster(seed, seen).run()
    seen["schedules"] = len(seeds)
    return seen


def test_a_few_schedules_converge() -> None:
    assert simulate(range(200))["messages"] > 1_000


@pytest.mark.slow
@pytest.mark.parametrize("block", range(BLOCKS))
def test_clusters_converge_whatever_happens_to_them(block: int, tally: Tally) -> None:
    each = SCHEDULES // BLOCKS
    seen = simulate(range(block * each, (block + 1) * each))
    for name, number in seen.items():
        tally(f"counters: {name}", number)
    assert [fault for fault in FAULTS if not seen[fault]] == []


@pytest.mark.slow
def test_long_schedules_converge(tally: Tally) -> None:
    seen: Counter[str] = Counter()
    for seed in (*FOUND, *range(LONG_SCHEDULES)):
        Cluster(seed, seen).run(steps=120)
    tally("counters: long schedules", LONG_SCHEDULES + len(FOUND))
    # Where nodes decide what their models cannot know. It has to stay rare.
    for name in ("parts that a stranger brought back", "TTLs that were decided anew"):
        tally(f"counters: {name}", seen[name])
        assert seen[name] * 50 < LONG_SCHEDULES


def test_readers_show_what_the_others_show_in_the_end() -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        Cluster(seed, seen).run(steps=60, readers=2)
    assert seen["readers that started again"] > 10


@pytest.mark.slow
def test_readers_of_many_clusters_show_what_the_others_show_in_the_end(tally: Tally) -> None:
    seen: Counter[str] = Counter()
    for seed in range(READER_SCHEDULES):
        Cluster(seed, seen).run(steps=60, readers=2)
    for name in ("calls of readers", "readers that started again"):
        tally(f"counters: {name}", seen[name])
    assert seen["readers that started again"] > READER_SCHEDULES // 10


@pytest.mark.soak
@pytest.mark.parametrize("block", range(BLOCKS))
def test_long_schedules_of_a_fresh_seed_converge(block: int, tally: Tally) -> None:
    seen: Counter[str] = Counter()
    first = int.from_bytes(os.urandom(6), "little")
    for seed in range(first, first + 50_000):
        Cluster(seed, seen).run(steps=120, readers=seed % 2)
    tally("counters: long schedules", 50_000)
    assert seen["messages"] > 1_000_000


def test_a_schedule_replays_from_its_seed() -> None:
    one, other = Counter[str](), Counter[str]()
    for seed in range(40):
        Cluster(seed, one).run()
        Cluster(seed, other).run()
    assert one == other
