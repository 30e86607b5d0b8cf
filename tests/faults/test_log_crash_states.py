"""Whatever a crash leaves of a log's disk, the log is as it was after some of its operations.

Every state is opened three times: by a reader beside nobody, by the next publisher, which must see
the same, and again after that one wrote.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.faults.checker import Violation
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_log import DrivenLog, Sync, contents, open_log
from tests.faults.driven_queue import digest
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Mark as TraceMark
from tests.log.contract.writing import append
from tidemill.errors import TidemillError

Step: TypeAlias = Callable[[DrivenLog], None]
Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
SHARE = 1.0 if SOAK else 0.12  # of the states of several operations; those of one are all judged

STEPS: dict[str, Step] = {
    "append one": lambda log: log.append(1),
    "append many": lambda log: log.append(5),
    "append marked": lambda log: log.append(2, number=100 + len(log.states)),
    "mark alone": lambda log: log.append(0, number=100 + len(log.states)),
    "roll": lambda log: log.append(3, length=5_000),
    "trim": lambda log: log.trim(log.state.first + 4),
    "trim all": lambda log: log.trim(10**9),
    "note": lambda log: log.note(f"s3://{len(log.states)}"),
    "ack": lambda log: log.ack(),
    "claim": lambda log: log.claim(),
    "reopen": lambda log: log.reopen(),
    "kill": lambda log: log.kill(),
}


def _driven(names: tuple[str, ...], sync: Sync) -> DrivenLog:
    return _driven_from(names, sync, 0)[0]


def _driven_from(names: tuple[str, ...], sync: Sync, known: int) -> tuple[DrivenLog, int]:
    """A log after some steps, and how many operations of its trace the first `known` made."""
    log = DrivenLog(sync=sync)
    log.append(3)
    log.append(2, number=1)
    log.append(3, length=5_000)
    log.ack()
    log.append(2)
    log.start_trace()
    since = 0
    for number, name in enumerate(names):
        if number == known:
            since = len(log.fs.trace.operations)
        STEPS[name](log)
    return log, since


def judge(
    fs: MemoryFileSystem,
    log: DrivenLog,
    acknowledged: int,
    attempted: int,
    *,
    readers_lag: bool = False,  # a head that could not be written is made up for by the next one
) -> None:
    """Accept a disk, or raise `Violation`."""
    reader = open_log(fs, read_only=True)
    seen = contents(reader)
    count = log.check(seen, 0 if readers_lag else acknowledged, attempted)
    count = max(count, acknowledged)
    owner = open_log(fs, sync=log.sync)
    writer = owner.claim()
    found = contents(owner)
    # What was written whole, but never shown, the next publisher finds and shows.
    count = log.check(found, count, attempted)
    if contents(reader) != found:
        raise Violation("a reader and the publisher beside it see different things")
    if writer.mark("loader") != found.mark:
        raise Violation("the publisher knows of another mark")
    for name, state in owner.consumers().items():
        if state.pointer >= owner.ends().next:
            raise Violation(f"the pointer of {name} stands behind the end")
    added = append(writer, [b"after the crash"])
    expected = found._replace(rows=(*found.rows, b"after the crash"))
    if added.first != found.first + len(found.rows) or contents(owner) != expected:
        raise Violation(f"after {count} operations the log cannot be used")
    reader.close()
    owner.close()
    again = open_log(fs, read_only=True)
    if contents(again) != expected:
        raise Violation("opened again it is something else")
    again.close()


def _judge_states(
    names: tuple[str, ...],
    sync: Sync,
    budget: int,
    judged: set[bytes],
    *,
    share: float = 1.0,
    known: int = 0,  # steps at the beginning whose states were judged before
) -> None:
    """Judge the states that a crash may leave, or a share of them, always the same."""
    log, since = _driven_from(names, sync, known)
    draw = random.Random(repr((names, sync)))
    for state in enumerate_states(log.fs.trace, budget=budget, since=since):
        if draw.random() >= share:
            continue
        acknowledged, attempted = log.bounds_of(state.marks)
        key = digest(state.image) + repr((acknowledged, attempted)).encode()
        if key in judged:
            continue
        judged.add(key)
        try:
            judge(state.file_system(), log, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            words = f"{names}, {sync}: {problem}\n{state.describe()}"
            raise AssertionError(words) from problem


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_each_operation_survives_crashes(name: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    for sync in ("full", "none"):
        _judge_states((name,), sync, 40, judged)
    tally("crash states of a log", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.slow
@pytest.mark.parametrize("first", STEPS)
def test_pairs_of_operations_survive_crashes(first: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    # What all pairs have in common comes by itself, and not with each of them again.
    for names in ((first,), *((first, second) for second in STEPS)):
        known = len(names) - 1
        _judge_states(names, "full", 400 if SOAK else 8, judged, share=SHARE, known=known)
        _judge_states(names, "none", 100 if SOAK else 3, judged, share=SHARE, known=known)
    draw = random.Random(first)
    for _ in range(100 if SOAK else 2):
        names = (first, *draw.choices(list(STEPS), k=2))
        _judge_states(names, draw.choice(("full", "none")), 60, judged, share=SHARE, known=1)
    assert len(judged) > 100
    tally("crash states of a log", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["full", "none"])
def test_the_making_of_a_log_survives_crashes(sync: Sync, tally: Tally) -> None:
    log = DrivenLog(sync=sync)
    log.append(2, number=1)
    count = 0
    for state in enumerate_states(log.fs.trace, budget=300):
        acknowledged, attempted = log.bounds_of(state.marks)
        fs = state.file_system()
        try:
            # A reader makes nothing, so that the next publisher comes first.
            open_log(fs, sync=sync).close()
            judge(fs, log, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{sync}: {problem}\n{state.describe()}") from problem
        count += 1
    assert count > 50
    tally("crash states of a log", count)
    tally("crash states in all", count)


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["full", "none"])
def test_a_log_that_begins_elsewhere_survives_crashes(sync: Sync, tally: Tally) -> None:
    log = DrivenLog(sync=sync)
    log.start_trace()
    log.begin(41)
    log.append(2, number=1)
    judged = 0
    for state in enumerate_states(log.fs.trace, budget=60):
        acknowledged, attempted = log.bounds_of(state.marks)
        try:
            judge(state.file_system(), log, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{sync}: {problem}\n{state.describe()}") from problem
        judged += 1
    assert judged > 20
    tally("crash states of a log", judged)
    tally("crash states in all", judged)


@pytest.mark.parametrize("first", ["append marked", "trim"])
def test_a_sample_of_pairs_survives_crashes(first: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    for second in ("roll", "kill"):
        _judge_states((first, second), "full", 10, judged, share=0.1)
    assert len(judged) > 5
    tally("crash states of a log", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.parametrize("sync", ["full", "none"])
def test_a_killed_publisher_has_written_all_that_returned(sync: Sync, tally: Tally) -> None:
    """The machine lives on, and so does the head: readers see it without a publisher."""
    names = ("append many", "append marked", "roll", "ack", "trim", "note", "roll", "append one")
    log = _driven(names, sync)
    trace = log.fs.trace
    points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, TraceMark)]
    for point in points:
        fs = MemoryFileSystem.replayed(trace, point)
        fs.boot = log.fs.boot
        acknowledged, attempted = log.bounds_of(fs.trace.operations)
        if sync == "none":
            acknowledged = max(acknowledged, attempted - 1)
        try:
            judge(fs, log, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{sync}, killed after {point}: {problem}") from problem
    tally("kills of a publisher", len(points))
