"""Whatever a crash leaves of a queue's disk, the queue is as it was after some of its operations.

Traces of operations are driven against a file system in memory, and every state that a crash may
leave is opened again: all pairs of operations, each with every state that losing its writes, or
tearing them at the edges of records and every 512 bytes, may leave (at every byte in the soak; of
more than a handful of writes that wait for a sync, as many subsets as `Limits` says); triples and
the other sync modes by sample, the making of a folder, recoveries that crash as well, and processes
killed at every call whose machine then loses its power, too.

Every failure names the operations and the id of its state; `replay_state` makes that state again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from itertools import islice, product
from typing import Literal, TypeAlias
from unittest.mock import patch

import pytest

from tests.faults.checker import MAIN, UniqueValues, Violation, bounds
from tests.faults.crash_states import CrashState, enumerate_states
from tests.faults.driven_queue import DrivenQueue, Judge, contents, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Mark
from tidemill.errors import TidemillError
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.journal.head import NAME as HEAD
from tidemill.files.upkeep import segment_facts, shelf

Step: TypeAlias = Callable[[DrivenQueue], None]
Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"


def _drain(queue: DrivenQueue) -> None:
    """Consume everything everywhere, so that whole segments go."""
    for fork in (MAIN, *queue.queue.forks()):
        queue.clear(fork)
    queue.upkeep()


def _if_there(fork: str, step: Step) -> Step:
    """A step on a fork that an earlier one may have removed."""
    return lambda queue: step(queue) if fork in queue.queue.forks() else None


STEPS: dict[str, Step] = {
    "push one": lambda queue: queue.push([7]),
    "push many": lambda queue: queue.push([5, 1, 5, 9]),
    "push buckets": lambda queue: queue.push([250, -20, 30, 120]),
    "pop": lambda queue: queue.pop(MAIN, 3),
    "pop fork": _if_there("a", lambda queue: queue.pop("a", 2)),
    "pop all": lambda queue: queue.pop(MAIN, -1),
    "read and push": lambda queue: queue.read_and_push(MAIN, 2, [3, 130]),
    "delete": lambda queue: queue.delete(MAIN, 4, 110),
    "fork": lambda queue: queue.fork("c", MAIN),
    "fork of fork": lambda queue: queue.fork("d", "b"),
    "remove": _if_there("a", lambda queue: queue.remove("a")),
    "clear": lambda queue: queue.clear(MAIN),
    "upkeep": lambda queue: queue.upkeep(),
    "drain": _drain,
    "drop": lambda queue: queue.drop_oldest(),
    "roll": lambda queue: queue.push_large([8, 108, 2]),
    "reopen": lambda queue: queue.reopen(),
    "kill": lambda queue: queue.kill(),
    "sync": lambda queue: queue.sync(),
}

# How many distinct states each test judges at least; together they are the plan.
TIMES = 72 if SOAK else 1
PAIRS_MIN = {"drop": 500, "drain": 2_000, "sync": 2_000, "upkeep": 3_000}
PAIRS_MIN_OTHERS = 3_500
TRIPLES_OF_FIRST_MIN = 400
MODES_MIN = 50
TRIPLES_MIN = 300
RECOVERY_MIN = 400
KILLS_MIN = 12
CREATION_MIN = 180
MODES: tuple[SyncMode, ...] = ("none", "data", "index")
SEEDS = range(3)


@pytest.fixture(autouse=True)
def _small_shelf(small_limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "SHELF_MEMORY_BYTES_MAX", 300)


def _rich(sync: SyncMode = "full") -> DrivenQueue:
    """A queue on which every step does something: two segments, three ends, two buckets."""
    queue = DrivenQueue(sync=sync)
    # Nothing is rewritten yet, so that the steps have something to rewrite.
    with patch.object(segment_facts, "TINY_FRAMES_MIN", 1_000):
        queue.push([1, 2, 3, 140])
        queue.fork("a", MAIN)
        queue.pop(MAIN, 1)
        for key in (5, 6, 7, 160, 8, 9, 10):
            queue.push([key])
        queue.fork("b", "a")
        queue.pop("a", 2)
        queue.push_large([60, 61])
        queue.push_large([62])
        queue.push([4, 104])
        queue.delete("b", 2, 3)
    queue.start_trace()
    return queue


def test_upkeep_carries_what_is_left_of_a_segment() -> None:
    queue = _driven(("upkeep",), "full")
    made = [str(operation) for operation in queue.fs.trace.operations]
    gone = [words for words in made if words.startswith(("unlink", "rename"))]
    assert [words for words in gone if "1.segment" in words]
    folder = queue.queue._core.folder
    frames = folder.index.frames_of_segment(folder.journal.active.number)
    assert set(frames.rows["audience"].tolist()) > {0}


def _driven(names: tuple[str, ...], sync: SyncMode) -> DrivenQueue:
    return _driven_from(names, sync, 0)[0]


def _driven_from(names: tuple[str, ...], sync: SyncMode, known: int) -> tuple[DrivenQueue, int]:
    """A queue after some steps, and how many operations of its trace the first `known` made."""
    queue = _rich(sync)
    since = 0
    for number, name in enumerate(names):
        if number == known:
            since = len(queue.fs.trace.operations)
        STEPS[name](queue)
    return queue, since


def _count(tally: Tally, what: str, judge: Judge) -> None:
    tally(f"crash states, {what}", judge.states)
    tally("crash states in all", judge.states)


def _judge_all(
    judge: Judge, queue: DrivenQueue, names: tuple[str, ...], states: Iterator[CrashState]
) -> None:
    """Judge the states that no earlier trace of the same judge had."""
    for state in states:
        acknowledged, attempted = queue.bounds_of(state.marks)
        words = tuple(queue.model.words[:attempted])
        if not judge.is_new(state.image, words, acknowledged):
            continue
        try:
            judge.judge(state.file_system(), queue.model, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{names}: {problem}\n{state.describe()}") from problem


def test_the_plan_is_at_least_fifty_thousand_states() -> None:
    pairs = sum(PAIRS_MIN.get(step, PAIRS_MIN_OTHERS) for step in STEPS)
    triples = len(STEPS) * TRIPLES_OF_FIRST_MIN
    modes = len(MODES) * len(STEPS) * MODES_MIN
    seeds = len(SEEDS) * (TRIPLES_MIN + RECOVERY_MIN)
    kills = 2 * len(STEPS) * KILLS_MIN
    planned = CREATION_MIN + kills + pairs + TIMES * (triples + modes + seeds)
    assert planned >= (1_000_000 if SOAK else 50_000), planned


def test_single_operations_survive_crashes(tally: Tally) -> None:
    judge = Judge()
    for name in list(STEPS)[::2]:
        queue = _driven((name,), "full")
        _judge_all(judge, queue, (name,), enumerate_states(queue.fs.trace, budget=10, ignored=HEAD))
    _count(tally, "a quick sample", judge)


@pytest.mark.slow
@pytest.mark.parametrize("first", STEPS)
def test_all_pairs_of_operations_survive_crashes(first: str, tally: Tally) -> None:
    judge = Judge()
    tear: Literal["edges", "bytes"] = "bytes" if SOAK else "edges"
    # What all pairs have in common comes by itself, and not with each of them again.
    for number, names in enumerate(((first,), *product((first,), STEPS))):
        queue, since = _driven_from(names, "full", len(names) - 1)
        states = enumerate_states(queue.fs.trace, tear=tear, since=since, ignored=HEAD)
        if len(names) > 1 and not SOAK:
            # Every other one, odd and even by turns: all of them would take minutes.
            states = islice(states, number % 2, None, 2)
        _judge_all(judge, queue, names, states)
    assert judge.states >= PAIRS_MIN.get(first, PAIRS_MIN_OTHERS)
    _count(tally, "pairs", judge)
    # Triples that begin with the same operation.
    judge.states = 0
    _judge_samples(judge, "full", (first,), 2, TIMES * TRIPLES_OF_FIRST_MIN, seed=0, known=2)
    _count(tally, "triples", judge)


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "first"), list(product(MODES, STEPS)))
def test_pairs_survive_crashes_in_every_sync_mode(sync: SyncMode, first: str, tally: Tally) -> None:
    judge = Judge(sync=sync)
    _judge_samples(judge, sync, (first,), 1, TIMES * MODES_MIN, seed=1)
    _count(tally, f"pairs, sync {sync}", judge)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_triples_survive_crashes_without_syncs(seed: int, tally: Tally) -> None:
    judge = Judge(sync="none")
    _judge_samples(judge, "none", (), 3, TIMES * TRIPLES_MIN, seed=seed)
    _count(tally, "triples, sync none", judge)


def _judge_samples(
    judge: Judge,
    sync: SyncMode,
    first: tuple[str, ...],
    more: int,
    planned: int,
    *,
    seed: int,
    # How many steps of each trace the judge has seen to already.
    known: int = 0,
) -> None:
    """Judge traces that begin with `first` and go on at random, until enough states were new."""
    draw = random.Random(f"{seed} {sync} {first}")
    budget = 2_000 if SOAK else 40 * more
    rests = list(product(STEPS, repeat=more))
    for rest in draw.sample(rests, len(rests)):
        if judge.states >= planned:
            return
        names = (*first, *rest)
        queue, since = _driven_from(names, sync, known)
        states = enumerate_states(
            queue.fs.trace, budget=budget, seed=seed, since=since, ignored=HEAD
        )
        _judge_all(judge, queue, names, states)
    raise AssertionError(f"only {judge.states} of {planned} states were found")


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_recovery_that_crashes_leads_to_the_same_state(seed: int, tally: Tally) -> None:
    draw = random.Random(seed)
    mode: SyncMode = ("full", "none", "none")[seed % 3]
    judge = Judge(sync=mode)
    while judge.states < TIMES * RECOVERY_MIN:
        names = tuple(draw.choices(list(STEPS), k=2))
        queue = _driven(names, mode)
        states = list(enumerate_states(queue.fs.trace, budget=60, seed=seed, ignored=HEAD))
        for state in draw.sample(states, min(6, len(states))):
            acknowledged, attempted = queue.bounds_of(state.marks)
            fs = state.file_system()
            judge.judge(fs, queue.model, acknowledged, attempted)
            for again in enumerate_states(fs.trace, budget=25, seed=seed):
                # Once the queue was open, what was found in it is a promise.
                found = max(acknowledged, bounds(again.marks)[0])
                try:
                    judge.judge(again.file_system(), queue.model, found, attempted)
                except (Violation, TidemillError) as problem:
                    words = f"{names}: {problem}\n{state.describe()}\n{again.describe()}"
                    raise AssertionError(words) from problem
    _count(tally, "recoveries that crash", judge)


@pytest.mark.slow
def test_making_a_folder_survives_crashes(tally: Tally) -> None:
    judge = Judge()
    queue = DrivenQueue()
    queue.push([3, 1])
    queue.fork("a", MAIN)
    _judge_all(judge, queue, ("make",), enumerate_states(queue.fs.trace, ignored=HEAD))
    assert judge.states >= CREATION_MIN
    _count(tally, "making a folder", judge)


@pytest.mark.slow
@pytest.mark.parametrize(("sync", "name"), list(product(("full", "none"), STEPS)))
def test_a_killed_process_and_then_a_power_cut_lose_nothing(
    sync: SyncMode, name: str, tally: Tally
) -> None:
    """What a killed process wrote is there for the next one, but not on disk. It must be, names and
    all, before anything is built on it.
    """
    judge = Judge(sync=sync)
    queue = _driven((name, "push one"), sync)
    trace = queue.fs.trace
    points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, Mark)]
    for point in points if SOAK else points[-8:]:
        _kill_then_cut(judge, queue, MemoryFileSystem.replayed(trace, point), point)
    assert judge.states >= KILLS_MIN
    _count(tally, "killed, then cut off", judge)


@pytest.mark.slow
def test_a_killed_maker_of_a_folder_and_then_a_power_cut_lose_nothing(tally: Tally) -> None:
    judge = Judge()
    queue = DrivenQueue()
    trace = queue.fs.trace
    points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, Mark)]
    for point in points:
        fs = MemoryFileSystem.replayed(trace, point)
        _kill_then_cut(judge, queue, fs, point, all_states=True)
    assert judge.states >= 10 * len(points)
    _count(tally, "killed, then cut off", judge)


def _kill_then_cut(
    judge: Judge, queue: DrivenQueue, fs: MemoryFileSystem, point: int, *, all_states: bool = SOAK
) -> None:
    """Open a disk as a kill left it, push, and judge what a power cut leaves from then on."""
    acknowledged, attempted = queue.bounds_of(fs.trace.operations)
    second = open_queue(fs, sync="full")
    count = queue.model.check(contents(second), acknowledged=acknowledged, attempted=attempted)
    fs.mark("opened")
    model = queue.model.resumed(count)
    pairs = UniqueValues(500_000).pairs([0, 300])
    model.push(pairs)
    second.push(pairs)
    fs.mark("pushed")
    states = list(enumerate_states(fs.trace, budget=10, since=point))
    drawn = random.Random(point).sample(states, min(12, len(states)))
    for state in states if all_states else drawn:
        seen = {mark.label for mark in state.marks}
        try:
            if "opened" in seen:
                judge.judge(state.file_system(), model, 1 if "pushed" in seen else 0, 1)
            else:
                judge.judge(state.file_system(), queue.model, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            words = f"killed after {point} operations: {problem}\n{state.describe()}"
            raise AssertionError(words) from problem
