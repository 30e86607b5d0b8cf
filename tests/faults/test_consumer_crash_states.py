"""Whatever a crash leaves of a queue with a consumer: one that has begun is there until its removal
was tried, its pointer is where it was promised to be, and it reads everything behind that.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Literal, NamedTuple, TypeAlias
from unittest.mock import patch

import pytest

from tests.faults.checker import MAIN, Violation
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_queue import BUCKET, ROOT, DrivenQueue, contents, digest, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Mark, Trace
from tidemill.errors import TidemillError
from tidemill.files.doctor.examination import Examination
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.queue.consumer import Consumer
from tidemill.files.report import Severity
from tidemill.files.upkeep import segment_facts
from tidemill.log.on_files.consumers import Consumers

pytestmark = pytest.mark.usefixtures("small_limits")

Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
NAME = "audit"

BEGIN, BEGUN, ACK, ACKED, REMOVE, REMOVED = "begin", "begun", "ack", "acked", "remove", "removed"


class Expected(NamedTuple):
    """What may be found of the consumer."""

    must_be: bool = False
    may_be: bool = False
    least: int = 0  # where its pointer may stand
    most: int = 0


def expected(found: Expected, marks: Iterable[object]) -> Expected:
    """What the marks before a crash allow, where so much was there before them."""
    for mark in marks:
        match getattr(mark, "label", None), getattr(mark, "payload", 0):
            case "begin", int(latest):
                found = Expected(may_be=True, most=latest)
            case "begun", int(pointer):
                found = Expected(True, True, pointer, pointer)
            case "ack", int(pointer):
                found = found._replace(most=pointer)
            case "acked", int(pointer):
                found = found._replace(least=pointer)
            case "remove", _:
                found = found._replace(must_be=False)
            case "removed", _:
                found = Expected()
    return found


class ConsumedQueue:
    """A driven queue with one consumer, whose steps are marked as well."""

    def __init__(self, sync: SyncMode, *, has_begun: bool) -> None:
        self.driven = driven = DrivenQueue(sync=sync)
        with patch.object(segment_facts, "TINY_FRAMES_MIN", 1_000):
            driven.push([1, 2, 3, 140])
            if has_begun:
                self._consumer().close()
            driven.pop(MAIN, 1)
            for key in (5, 160, 8):
                driven.push([key])
            driven.push_large([60, 61])
            driven.push_large([62])
        driven.start_trace()
        pointer = driven.queue.consumers().get(NAME)
        self.before = Expected() if pointer is None else Expected(True, True, pointer, pointer)

    def begin(self) -> None:
        self._consumer().close()

    def ack(self) -> None:
        with self._consumer() as consumer:
            batch = consumer.read(2)
            if batch.last is not None:
                fs, seq = self.driven.fs, batch.last.seq
                fs.mark(ACK, seq, promise=False)
                consumer.ack(seq)
                if self.driven.sync_mode in ("index", "full"):
                    fs.mark(ACKED, seq)

    def remove(self) -> None:
        consumer = self._consumer()
        self.driven.fs.mark(REMOVE, promise=False)
        consumer.remove()
        self.driven.fs.mark(REMOVED)

    def _consumer(self) -> Consumer:
        queue, fs = self.driven.queue, self.driven.fs
        if NAME in queue.consumers():
            return queue.consumer(NAME)
        fs.mark(BEGIN, queue.stats().next_seq - 1, promise=False)
        consumer = queue.consumer(NAME)
        fs.mark(BEGUN, consumer.pointer)
        return consumer


STEPS: dict[str, Callable[[ConsumedQueue], None]] = {
    "begin": ConsumedQueue.begin,
    "ack": ConsumedQueue.ack,
    "remove": ConsumedQueue.remove,
    "push": lambda queue: queue.driven.push([5, 130, 1]),
    "pop": lambda queue: queue.driven.pop(MAIN, 4),
    "roll": lambda queue: queue.driven.push_large([8, 108, 2]),
    "upkeep": lambda queue: queue.driven.upkeep(),
    "clear": lambda queue: queue.driven.clear(MAIN),
    "reopen": lambda queue: queue.driven.reopen(),
    "kill": lambda queue: queue.driven.kill(),
}
OURS = ("begin", "ack", "remove")


def _judge(
    fs: MemoryFileSystem, driven: DrivenQueue, known: Expected, acknowledged: int, attempted: int
) -> None:
    report = Examination(fs, ROOT, bucket=BUCKET, on_progress=None).report
    if report.worst is Severity.DAMAGE:
        raise Violation(f"the doctor calls a crash damage: {report.findings}")
    with open_queue(fs, sync=driven.sync_mode) as queue:
        found = contents(queue)
        driven.model.check(found, acknowledged=acknowledged, attempted=attempted)
        arrived = queue.stats().next_seq - 1
        pointers = queue.consumers()
        if known.must_be and NAME not in pointers:
            raise Violation("the consumer is gone")
        if NAME in pointers and not known.may_be:
            raise Violation("the consumer is back")
        if left := set(_files(fs)) - set(pointers):
            raise Violation(f"{left} were left behind")
        if NAME in pointers:
            # What was lost with the last pushes takes the pointer back with it.
            least, most = min(known.least, arrived), min(known.most, arrived)
            if not least <= pointers[NAME] <= most:
                raise Violation(f"the pointer is {pointers[NAME]}, not from {least} to {most}")
        queue._core.maintenance.run_round()
        with queue.consumer(NAME) as consumer:
            seqs = consumer.read(1_000).seqs.to_pylist()
            if seqs != list(range(consumer.pointer + 1, arrived + 1)):
                raise Violation(f"behind {consumer.pointer} of {arrived} it reads {seqs}")
        queue.consumer(NAME).remove()
        if queue.consumers() or _files(fs):
            raise Violation("the consumer stays after it was removed")
        if contents(queue) != found:
            raise Violation("what a consumer does shows in the queue")


def _files(fs: MemoryFileSystem) -> list[str]:
    return fs.list_folder(ROOT / "consumers") if "consumers" in fs.list_folder(ROOT) else []


def _judge_states(
    names: tuple[str, ...],
    sync: SyncMode,
    *,
    has_begun: bool,
    budget: int | None,
    judged: set[bytes],
    tear: Literal["edges", "bytes"] = "edges",
) -> None:
    queue = ConsumedQueue(sync, has_begun=has_begun)
    for name in names:
        STEPS[name](queue)
    driven = queue.driven
    for state in enumerate_states(driven.fs.trace, budget=budget, tear=tear):
        known, bounds = expected(queue.before, state.marks), driven.bounds_of(state.marks)
        key = digest(state.image) + repr((known, bounds, sync)).encode()
        if key in judged:
            continue
        judged.add(key)
        try:
            _judge(state.file_system(), driven, known, *bounds)
        except (Violation, TidemillError, OSError) as problem:
            words = f"{names}, {sync}, {has_begun=}: {problem}\n{state.describe()}"
            raise AssertionError(words) from problem


@pytest.mark.parametrize("names", [("begin",), ("ack", "ack"), ("ack", "remove")])
def test_a_consumer_survives_crashes_and_tears_at_every_byte(
    names: tuple[str, ...], tally: Tally
) -> None:
    judged: set[bytes] = set()
    for has_begun in (False, True):
        _judge_states(names, "full", has_begun=has_begun, budget=None, judged=judged, tear="bytes")
    assert len(judged) > 50
    tally("crash states of consumers", len(judged))
    tally("crash states in all", len(judged))


@pytest.mark.parametrize("name", OURS)
def test_what_a_killed_process_did_lasts_once_another_relies_on_it(name: str, tally: Tally) -> None:
    """The machine lives on, until the one that comes next has used the consumer."""
    queue = ConsumedQueue("full", has_begun=False)
    STEPS[name](queue)
    driven = queue.driven
    trace = driven.fs.trace
    points = [at for at, one in enumerate(trace.operations, 1) if not isinstance(one, Mark)]
    judged = 0
    for point in points:
        fs = MemoryFileSystem.replayed(trace, point)
        owner = open_queue(fs)
        with owner.consumer(NAME) as consumer:
            fs.mark(BEGUN, consumer.pointer)
        after = len(fs.trace.operations)
        owner.push([(7, b"pushed by the next one")])
        for state in enumerate_states(fs.trace, budget=30, since=after):
            with open_queue(state.file_system()) as again:
                try:
                    assert again.consumers().get(NAME) == consumer.pointer
                except AssertionError as problem:
                    words = f"{name}, killed after {point}: {problem}\n{state.describe()}"
                    raise AssertionError(words) from problem
            judged += 1
        fs.die()
    assert judged > len(points)
    tally("crash states of consumers", judged)
    tally("crash states in all", judged)


def test_what_a_killed_receiver_did_to_a_log_lasts_once_another_relies_on_it(tally: Tally) -> None:
    fs = MemoryFileSystem()
    for folder in (ROOT.parent, ROOT):
        fs.make_folder(folder)
        fs.sync_folder(folder.parent)
    fs.trace = Trace(fs.image())
    consumers = Consumers(fs, ROOT, sync=True)
    consumers.move(consumers.claim(NAME, lambda: 10), 12)
    consumers.remove(NAME)
    trace = fs.trace
    judged = 0
    for point in range(1, len(trace.operations) + 1):
        fs = MemoryFileSystem.replayed(trace, point)
        claim = Consumers(fs, ROOT, sync=True).claim(NAME, lambda: 20)
        after = len(fs.trace.operations)
        assert claim.pointer in (10, 12, 20)
        fs.mark("claimed")
        for state in enumerate_states(fs.trace, since=after):
            found = Consumers(state.file_system(), ROOT, sync=True).all()
            assert NAME in found, state.describe()
            assert found[NAME].pointer == claim.pointer, state.describe()
            judged += 1
    assert judged > len(trace.operations)
    tally("crash states of consumers", judged)
    tally("crash states in all", judged)


@pytest.mark.slow
@pytest.mark.parametrize("first", STEPS)
def test_pairs_of_steps_with_a_consumer_survive_crashes(first: str, tally: Tally) -> None:
    judged: set[bytes] = set()
    budget = 400 if SOAK else 25
    syncs: tuple[SyncMode, ...] = ("full", "none", "data", "index")
    draw = random.Random(first)
    for second in STEPS if first in OURS else OURS:
        for has_begun in (False, True):
            sync = draw.choice(syncs)
            _judge_states((first, second), sync, has_begun=has_begun, budget=budget, judged=judged)
    for _ in range(100 if SOAK else 6):
        names = (first, draw.choice(OURS), *draw.choices(list(STEPS), k=2))
        has_begun = draw.random() < 0.5
        _judge_states(names, draw.choice(syncs), has_begun=has_begun, budget=budget, judged=judged)
    assert len(judged) > 100
    tally("crash states of consumers", len(judged))
    tally("crash states in all", len(judged))


def test_an_expectation_follows_the_marks() -> None:
    """Or the judge would accept everything, or nothing."""
    fs = MemoryFileSystem()
    seen = []
    for label, payload in [
        (BEGIN, 7), (BEGUN, 7), (ACK, 9), (ACKED, 9), (REMOVE, None), (REMOVED, None)
    ]:  # fmt: skip
        fs.mark(label, payload)
        seen.append(expected(Expected(), fs.trace.operations))
    assert seen == [
        Expected(False, True, 0, 7),
        Expected(True, True, 7, 7),
        Expected(True, True, 7, 9),
        Expected(True, True, 9, 9),
        Expected(False, True, 9, 9),
        Expected(),
    ]
