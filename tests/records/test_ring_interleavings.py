"""Every interleaving of two operations, with an expiry of the lock and a fault at every step."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.records.pairs import (
    DOUBTS,
    MODES,
    PAIRS,
    asked_for,
    overtaken_reader,
    pair,
    put,
    take,
    waiting_pairs,
)
from tests.records.schedules import Pair, explore, filled, run_random
from tests.records.simulator import Op, World
from tidemill.limits import INT64_MAX

Tally = Callable[[str, int], None]

# How many schedules there are at least, so that nobody makes the tests quicker by accident.
LEAST = {"two expiries": 27_000, "lost answer": 30_000, "crash": 16_000}
LEAST_WAITING = 2_000
LONG_DOUBTS = {"lost answers", "late request"}
RANDOM_SCHEDULES = 26_000
RANDOM_PARTS = 8
TALLY = "schedules of a ring"


def test_there_are_a_hundred_thousand_schedules() -> None:
    assert sum(LEAST.values()) + LEAST_WAITING + RANDOM_SCHEDULES >= 100_000


@pytest.mark.slow
@pytest.mark.parametrize("mode", LEAST)
def test_every_order_of_two_operations_is_that_of_a_queue(mode: str, tally: Tally) -> None:
    count = broken = faults = 0
    for name in PAIRS:
        for world in explore(pair(name, mode)):
            count += 1
            broken += world.broken
            faults += sum(world.faults.values())
    assert count >= LEAST[mode]
    assert broken > count / 2  # a lock is broken in most of them
    assert faults > count / 2 or not MODES[mode][1]
    tally(TALLY, count)


@pytest.mark.soak
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode not in LEAST])
def test_every_order_with_other_faults_is_that_of_a_queue(mode: str, tally: Tally) -> None:
    for name in PAIRS:
        tally(TALLY, sum(1 for _ in explore(pair(name, mode))))


@pytest.mark.slow
def test_a_store_without_a_clock_is_waited_for(tally: Tally) -> None:
    count = broken = 0
    for waiting in waiting_pairs():
        for world in explore(waiting):
            count += 1
            broken += world.broken
    assert count >= LEAST_WAITING
    assert broken > count / 2
    tally(TALLY, count)


@pytest.mark.slow
def test_a_reader_who_is_overtaken_finds_the_entry_or_nothing(tally: Tally) -> None:
    seen = set()
    count = 0
    for world in explore(overtaken_reader()):
        count += 1
        seen |= {call.result for call in world.history.calls if call.kind == "get"}
    assert seen == {(), ((4, "b3"),)}
    tally(TALLY, count)


@pytest.mark.parametrize(
    "doubt",
    [
        pytest.param(doubt, marks=pytest.mark.slow if doubt in LONG_DOUBTS else ())
        for doubt in DOUBTS
    ],
)
def test_what_is_said_about_an_operation_is_so_and_stays_so(doubt: str, tally: Tally) -> None:
    told = set()
    count = 0
    for world in explore(asked_for(doubt)):
        count += 1
        told |= {outcome.state for _, outcome in world.told}
    assert told == {"unknown", "running", "aborted", "committed"}
    tally(TALLY, count)


def test_a_live_lock_is_never_broken() -> None:
    for name in ("put and put", "take and take", "overwrite and overwrite"):
        alone = pair(name, "two expiries")
        alone.expiries = 0
        assert all(world.broken == 0 for world in explore(alone))


def test_counters_work_up_to_the_last_one_there_is() -> None:
    """The last token and the last offset are used, and the next operation is refused."""
    fence = INT64_MAX - 6  # which leaves a grant for each of six operations
    for world in explore(
        Pair(World(capacity=2, slots=2, fence=fence), (put("x"),), (put("y"),), expiries=1)
    ):
        assert fence < world.metadata.fence <= fence + 6
    world = World(capacity=3, slots=2, tail=INT64_MAX - 2)
    filled(world, put("a"), put("b"), take(), take())
    assert world.metadata.tail == INT64_MAX
    assert world.metadata.head == INT64_MAX


@pytest.mark.slow
@pytest.mark.parametrize("part", range(RANDOM_PARTS))
def test_random_schedules_of_many_clients_are_those_of_a_queue(part: int, tally: Tally) -> None:
    seeds = range(part, RANDOM_SCHEDULES, RANDOM_PARTS)
    faults: dict[str, int] = {}
    broken = 0
    for seed in seeds:
        world = run_random(seed)
        broken += world.broken
        for name, number in world.faults.items():
            faults[name] = faults.get(name, 0) + number
    assert broken > len(seeds) / 10
    kinds = ("pause", "skew", "crash", "late", "delivered late", "refused")
    for name in (*kinds, "answer lost", "request lost"):
        assert faults[name] > len(seeds) / 50, name
    tally(TALLY, len(seeds))


def test_some_random_schedules_are_those_of_a_queue(tally: Tally) -> None:
    for seed in range(1_000_000, 1_000_100):
        run_random(seed)
    tally(TALLY, 100)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(100))
def test_many_more_random_schedules_are_those_of_a_queue(part: int, tally: Tally) -> None:
    for seed in range(10_000_000 + part * 20_000, 10_000_000 + (part + 1) * 20_000):
        run_random(seed, scale=1 + seed % 4)
    tally(TALLY, 20_000)


def test_a_schedule_is_the_same_whenever_it_is_run() -> None:
    first, second = run_random(17), run_random(17)
    assert first.history == second.history
    assert first.kept == second.kept


def test_one_id_for_every_operation_does_no_harm() -> None:
    """The simulated clients all use one id: here they also ask for it."""
    asked = Pair(
        filled(World(capacity=2, slots=1), put("a")), (put("x"),), (Op("outcome"),), expiries=2
    )
    assert sum(1 for _ in explore(asked)) > 100
