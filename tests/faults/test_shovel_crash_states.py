"""Whatever a crash leaves of two queues in the middle of a shovel, no item is in neither of them.

Every failure names the case and the id of its state; `replay_state` makes that state again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from itertools import product
from typing import TypeAlias

import pytest

from tests.faults.checker import MAIN, UniqueValues, Violation
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_pair import FULL, SHOVELED, DrivenPair, Modes, open_pair
from tests.faults.driven_queue import digest
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Mark
from tidemill.errors import TidemillError
from tidemill.files.queue.priority_queue import PriorityQueue

pytestmark = pytest.mark.usefixtures("small_limits")

Tally: TypeAlias = Callable[[str, int], None]
Fill: TypeAlias = Callable[[PriorityQueue, PriorityQueue, UniqueValues], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
STATES_MAX = 20_000 if SOAK else 150
STATES_MAX_OTHERS = 5_000 if SOAK else 60  # in other modes than full

MODES = [
    FULL,
    Modes("none", "full"),
    Modes("full", "none"),
    Modes("index", "data"),
    Modes("data", "index"),
    Modes("none", "none"),
]


def _several_segments(source: PriorityQueue, values: UniqueValues) -> None:
    """Overlapping frames in two buckets and three segments, some of it consumed."""
    large = UniqueValues(1_000_000, length=5_000)
    source.push(values.pairs([5, 1, 140, 5]))
    source.push(large.pairs([7, 60]))
    source.push(values.pairs([3, 150, 2]))
    source.push(large.pairs([8]))
    source.push(large.pairs([108]))
    source.push(values.pairs([5, 9]))
    source.pop(2)
    source.delete(9, 50)


def _into_items(source: PriorityQueue, target: PriorityQueue, values: UniqueValues) -> None:
    _several_segments(source, values)
    target.push(values.pairs([4, 120]))
    target.fork("t")
    target.pop(1)


def _of_a_fork(source: PriorityQueue, target: PriorityQueue, values: UniqueValues) -> None:
    source.fork("other")
    _several_segments(source, values)
    source.fork("end").pop(1)


def _into_nothing(source: PriorityQueue, target: PriorityQueue, values: UniqueValues) -> None:
    """The way of segments: an empty destination, whose forks have consumed what it had."""
    _several_segments(source, values)
    target.push(values.pairs([4, 120]))
    fork = target.fork("t")
    target.clear()
    fork.fork("u").clear()
    fork.clear()


FILLS: dict[str, tuple[Fill, str]] = {
    "into items": (_into_items, MAIN),
    "of a fork": (_of_a_fork, "end"),
    "into nothing": (_into_nothing, MAIN),
}


@pytest.mark.slow
@pytest.mark.parametrize(("what", "modes"), list(product(FILLS, MODES)), ids=str)
def test_a_shovel_survives_crashes(what: str, modes: Modes, tally: Tally) -> None:
    fill, end = FILLS[what]
    pair = DrivenPair(fill, end=end, modes=modes)
    pair.shovel()
    assert bool(pair.target._core.folder.state.adopted) == (what == "into nothing")
    seen: set[bytes] = set()
    judged = doubled = 0
    budget = STATES_MAX if modes == FULL else STATES_MAX_OTHERS
    for state in enumerate_states(pair.fs.trace, budget=budget):
        is_done = any(mark.label == SHOVELED for mark in state.marks)
        key = digest(state.image) + bytes([is_done])
        if key in seen:
            continue
        seen.add(key)
        try:
            doubled += bool(pair.judge(state.file_system(), state.marks, power_cut=True))
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{what}, {modes}: {problem}\n{state.describe()}") from problem
        judged += 1
    assert judged > 30
    assert doubled, "no state had an item in both queues: the dangerous moment was never met"
    tally("crash states, shovel", judged)
    tally("crash states in all", judged)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "modes"), list(product(FILLS, MODES)), ids=str)
def test_a_shovel_killed_at_every_call_loses_nothing(what: str, modes: Modes, tally: Tally) -> None:
    fill, end = FILLS[what]
    pair = DrivenPair(fill, end=end, modes=modes)
    pair.shovel()
    operations = pair.fs.trace.operations
    points = [at for at, one in enumerate(operations, 1) if not isinstance(one, Mark)]
    for point in points:
        fs = MemoryFileSystem.replayed(pair.fs.trace, point)
        pair.judge(fs, operations[:point], power_cut=False)
    assert len(points) > 5
    tally("kills in the middle of a shovel", len(points))


@pytest.mark.slow
@pytest.mark.parametrize("modes", [FULL, Modes("none", "full")], ids=str)
@pytest.mark.parametrize("killed", [False, True], ids=["after a power cut", "after a kill"])
def test_recoveries_that_crash_lose_nothing(modes: Modes, killed: bool, tally: Tally) -> None:
    """Opening finishes or undoes what a handover left, and may be cut off itself."""
    pair = DrivenPair(_into_nothing, modes=modes)
    pair.shovel()
    trace = pair.fs.trace
    draw = random.Random(7)
    if killed:
        # What was written is there for the next process, but not on disk.
        points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, Mark)]
        disks = [(MemoryFileSystem.replayed(trace, at), trace.operations[:at]) for at in points]
    else:
        states = list(enumerate_states(trace, budget=STATES_MAX))
        some = draw.sample(states, min(len(states), 400 if SOAK else 40))
        disks = [(state.file_system(), list(state.marks)) for state in some]
    judged = 0
    for fs, marks in disks:
        start = len(fs.trace.operations)
        open_pair(fs, modes)
        states = list(enumerate_states(fs.trace, budget=30, since=start))
        for state in draw.sample(states, min(len(states), 60 if SOAK else 8)):
            try:
                pair.judge(state.file_system(), marks, power_cut=True)
            except (Violation, TidemillError) as problem:
                raise AssertionError(f"{modes}: {problem}\n{state.describe()}") from problem
            judged += 1
    assert judged > 100
    tally("crash states, recoveries from a shovel", judged)
    tally("crash states in all", judged)
