"""Whatever a crash leaves of a disk, readers see it as the next owner does; and what readers and
consumers leave of themselves stands in nobody's way.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TypeAlias
from unittest.mock import patch

import pytest

from tests.faults.checker import MAIN, Violation
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_queue import ROOT, DrivenQueue, contents, digest, open_queue, open_reader
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Mark
from tidemill.errors import TidemillError
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.upkeep import segment_facts

pytestmark = pytest.mark.usefixtures("small_limits")

Step: TypeAlias = Callable[[DrivenQueue], None]
Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"

STEPS: dict[str, Step] = {
    "look": lambda queue: queue.look(dies=False),
    "look and die": lambda queue: queue.look(dies=True),
    "consume": lambda queue: queue.consume(),
    "push": lambda queue: queue.push([5, 130, 1]),
    "pop": lambda queue: queue.pop(MAIN, 4),
    "roll": lambda queue: queue.push_large([8, 108, 2]),
    "upkeep": lambda queue: queue.upkeep(),
    "reopen": lambda queue: queue.reopen(),
    "kill": lambda queue: queue.kill(),
    "clear": lambda queue: queue.clear(MAIN),
}
OURS = ("look", "look and die", "consume")


def _driven(names: tuple[str, ...], sync: SyncMode) -> DrivenQueue:
    queue = DrivenQueue(sync=sync)
    with patch.object(segment_facts, "TINY_FRAMES_MIN", 1_000):
        queue.push([1, 2, 3, 140])
        queue.fork("a", MAIN)
        queue.pop(MAIN, 1)
        for key in (5, 160, 8):
            queue.push([key])
        queue.push_large([60, 61])
        queue.push_large([62])
        queue.pop("a", 2)
    queue.start_trace()
    for name in names:
        STEPS[name](queue)
    return queue


def _judge(fs: MemoryFileSystem, queue: DrivenQueue, acknowledged: int, attempted: int) -> None:
    """A reader sees a disk as the owner does that opens it next, and the owner clears up."""
    reader = open_reader(fs)
    seen = contents(reader)
    queue.model.check(seen, acknowledged=acknowledged, attempted=attempted)
    owner = open_queue(fs, sync=queue.sync_mode)
    found = contents(owner)
    queue.model.check(found, acknowledged=acknowledged, attempted=attempted)
    if contents(reader) != found:
        raise Violation("a reader and the owner see different things")
    for name, pointer in owner.consumers().items():
        if pointer >= owner.stats().next_seq:
            raise Violation(f"the pointer of {name} stands behind the end")
        with owner.consumer(name, start="earliest") as consumer:
            seqs = consumer.read(1_000).seqs.to_pylist()
            if seqs != sorted(set(seqs)) or (seqs and seqs[0] <= pointer):
                raise Violation(f"consumer {name} at {pointer} reads {seqs}")
            if owner.stats().next_seq - 1 > pointer and not seqs:
                raise Violation(f"consumer {name} at {pointer} has nothing to read")
    reader.close()
    owner.close()
    if left := fs.list_folder(ROOT / "readers"):
        raise Violation(f"what dead readers left stays: {left}")


def _judge_states(names: tuple[str, ...], sync: SyncMode, budget: int, judged: set[bytes]) -> None:
    queue = _driven(names, sync)
    for state in enumerate_states(queue.fs.trace, budget=budget):
        acknowledged, attempted = queue.bounds_of(state.marks)
        key = digest(state.image) + repr((acknowledged, attempted)).encode()
        if key in judged:
            continue
        judged.add(key)
        try:
            _judge(state.file_system(), queue, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            words = f"{names}, {sync}: {problem}\n{state.describe()}"
            raise AssertionError(words) from problem


@pytest.mark.parametrize("first", OURS)
def test_readers_and_consumers_survive_crashes(first: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    for sync in ("full", "none"):
        _judge_states((first, "push"), sync, 15, judged)
    assert len(judged) > 20
    tally("crash states seen by readers", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.slow
@pytest.mark.parametrize("first", STEPS)
def test_pairs_with_readers_and_consumers_survive_crashes(first: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    for second in STEPS if first in OURS else OURS:
        for sync in ("full", "none"):
            _judge_states((first, second), sync, 200 if SOAK else 12, judged)
    draw = random.Random(first)
    for _ in range(100 if SOAK else 4):
        names = (first, *draw.choices(list(STEPS), k=2))
        _judge_states(names, draw.choice(("full", "none", "data", "index")), 30, judged)
    assert len(judged) > 100
    tally("crash states seen by readers", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.parametrize("sync", ["full", "none", "data", "index"])
def test_readers_of_a_killed_owner_see_all_it_was_told(sync: SyncMode, tally: Tally) -> None:
    """The machine lives on, and so does the head."""
    names = ("push", "consume", "roll", "pop", "upkeep", "look and die", "clear", "upkeep", "push")
    queue = _driven(names, sync)
    trace = queue.fs.trace
    points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, Mark)]
    for point in points:
        fs = MemoryFileSystem.replayed(trace, point)
        fs.boot = queue.fs.boot
        acknowledged, attempted = queue.bounds_of(fs.trace.operations)
        if sync != "full":
            # Killed is not cut off: what had returned is there in every mode.
            acknowledged = max(acknowledged, attempted - 1)
        try:
            _judge(fs, queue, acknowledged, attempted)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{sync}, killed after {point}: {problem}") from problem
    tally("kills seen by readers", len(points))
