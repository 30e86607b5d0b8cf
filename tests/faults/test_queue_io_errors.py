"""A disk that fails at every call, once or from then on: nothing that was promised is lost.

After an error the handle is either as good as before, and the operation never happened; or it is
poisoned and takes no more writes, because nobody knows what is on disk. A full disk is of the first
kind. Whatever happened, a healthy disk has all that was acknowledged, also after a power cut.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest

from tests.faults.checker import ACKNOWLEDGED, MAIN, Pair, PrefixModel, UniqueValues, Violation
from tests.faults.crash_states import replay_state
from tests.faults.driven_queue import DrivenQueue, contents, open_queue, use
from tests.faults.io_errors import FailingFileSystem, Stickiness
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.pending import Pending
from tests.faults.trace import Image
from tidemill.errors import DiskFull, StorageFailed, TidemillError
from tidemill.files.upkeep import shelf

Tally: TypeAlias = Callable[[str, int], None]

STEPS: list[Callable[[DrivenQueue], None]] = [
    lambda queue: queue.push([7]),
    lambda queue: queue.push([5, 140, 5]),
    lambda queue: queue.pop(MAIN, 2),
    lambda queue: queue.fork("c", MAIN),
    lambda queue: queue.consume(),
    lambda queue: queue.push_large([8, 108]),
    lambda queue: queue.upkeep(),
    lambda queue: queue.read_and_push(MAIN, 2, [3, 130]),
    lambda queue: queue.delete("a", 4, 110),
    lambda queue: queue.remove("c"),
    lambda queue: queue.end_consumer(),
    lambda queue: queue.push_large([9]),
    lambda queue: queue.clear("a"),
    lambda queue: queue.sync(),
    lambda queue: queue.reopen(),
    lambda queue: queue.push([2]),
    lambda queue: queue.clear(MAIN),
    lambda queue: queue.upkeep(),
]


@pytest.fixture(autouse=True)
def _small_shelf(small_limits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf, "SHELF_MEMORY_BYTES_MAX", 300)


@cache
def _base() -> Image:
    """A queue with a fork and a segment of tiny frames; closed."""
    queue = DrivenQueue()
    for key in (1, 2, 140, 160):
        queue.push([key])
    queue.fork("a", MAIN)
    queue.push_large([60, 61])
    queue.queue.close()
    return queue.fs.image()


@cache
def _base_contents() -> dict[str, list[Pair]]:
    return contents(open_queue(MemoryFileSystem(_base())))


class _Run:
    """The steps on a disk that fails, and what came of them."""

    def __init__(self, **fault: object) -> None:
        self.fs = MemoryFileSystem(_base())
        self.disk = FailingFileSystem(self.fs, **fault)  # type: ignore[arg-type]
        self.errors: list[TidemillError] = []
        self.queue: DrivenQueue | None = None
        self.usable_after_error = False
        self._go()

    def _go(self) -> None:
        try:
            self.queue = DrivenQueue.resumed(self.fs, self.disk, _base_contents())
        except TidemillError as error:
            self.errors.append(error)
            return
        for step in STEPS:
            if not self._try(self.queue, step):
                return

    def _try(self, queue: DrivenQueue, step: Callable[[DrivenQueue], None]) -> bool:
        """One step; False if the handle is of no more use."""
        before = queue.model.attempted
        journal = queue.queue._core.folder.journal
        was_poisoned = journal.failure is not None
        try:
            step(queue)
        except TidemillError as error:
            self.errors.append(error)
            if queue.queue._core.folder.is_closed:
                return False
            if was_poisoned or journal.failure is not None:
                # It is open whether the operation happened; none may be taken on from here.
                self._check_poisoned(queue)
                return False
            if queue.model.attempted > before:
                queue.model.retract()
        else:
            assert not was_poisoned, "a poisoned handle took a write"
            self.usable_after_error = bool(self.errors)
        return True

    def _check_poisoned(self, queue: DrivenQueue) -> None:
        calls = self.disk.calls
        try:
            queue.queue.push([b"one more"])
        except StorageFailed:
            pass
        else:
            raise AssertionError("a poisoned handle took a write")
        later = self.disk.log[calls:]
        assert not [call for call in later if call.startswith(("sync ", "pwrite "))], later

    def check(self) -> None:
        """On a healthy disk everything acknowledged is there, before and after a power cut."""
        self.disk.heal()
        self.fs.die()
        again = open_queue(self.fs)
        found = contents(again)
        again.consumer("c").remove()
        assert not again.consumers()
        model = PrefixModel() if self.queue is None else self.queue.model
        if self.queue is None:
            assert found == _base_contents()
            use(again, found)
            return
        count = model.check(found)
        self.fs.mark(ACKNOWLEDGED, count)
        twin = model.resumed(count)
        pairs = UniqueValues(900_000).pairs([0, 20])
        twin.push(pairs)
        again.push(pairs)
        self._cut_power(twin)

    def _cut_power(self, model: PrefixModel) -> None:
        """Nothing, or some, of what was not synced is kept; failed syncs made nothing last."""
        trace = self.fs.trace
        pending = Pending(trace.initial)
        for operation in trace.operations:
            pending.apply(operation)
        draw = random.Random(len(trace.operations))
        masks = {0, *(draw.getrandbits(len(pending.units)) for _ in range(2))}
        for kept in masks if pending.units else {0}:
            state = replay_state(trace, f"{len(trace.operations)}:{kept:x}")
            try:
                model.check(contents(open_queue(state.file_system())), acknowledged=1)
            except (Violation, TidemillError) as problem:
                raise AssertionError(f"{problem}\n{state.describe()}") from problem


def _calls(kinds: frozenset[str] | None) -> int:
    run = _Run(kinds=kinds)
    assert not run.errors
    run.check()
    return run.disk.calls


def _fail_everywhere(
    error: int,
    sticky: Stickiness,
    partial_bytes: int,
    *,
    every: int = 1,
    kinds: frozenset[str] | None = None,
) -> tuple[int, int]:
    """(how many calls were failed, after how many of them the handle went on)."""
    total = _calls(kinds)
    runs = usable = 0
    for number in range(1, total + 1, every):
        run = _Run(
            fail_at=number, error=error, sticky=sticky, partial_bytes=partial_bytes, kinds=kinds
        )
        assert run.disk.fired, number
        words = f"{os.strerror(error)}, {sticky}, at call {number}: {run.disk.log[number - 1]}"
        try:
            run.check()
        except (AssertionError, TidemillError) as problem:
            raise AssertionError(f"{words}: {problem}\n{run.errors}") from problem
        runs += 1
        usable += run.usable_after_error
    return runs, usable


# A partial write differs little where everything else fails as well.
KINDS: list[tuple[Stickiness, int]] = [
    ("once", 0),
    ("once", 100),
    ("once", 5_000),
    ("kind", 0),
    ("changes", 100),
    ("all", 0),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "sticky", "partial_bytes"),
    [
        pytest.param(error, *kind, id=f"{errno.errorcode[error]}-{kind[0]}-{kind[1]}")
        for error in (errno.EIO, errno.ENOSPC)
        for kind in KINDS
    ],
)
def test_an_error_at_any_call_loses_nothing(
    error: int, sticky: Stickiness, partial_bytes: int, tally: Tally
) -> None:
    # What is written in part concerns writes alone; the other calls fail as they do without.
    is_partial = sticky == "once" and partial_bytes > 0
    kinds = frozenset({"pwrite"}) if is_partial else None
    runs, usable = _fail_everywhere(error, sticky, partial_bytes, kinds=kinds)
    if error == errno.ENOSPC and sticky == "once":
        assert usable > runs // 20
    tally(f"calls that failed with {errno.errorcode[error]}", runs)


def test_an_error_at_some_calls_loses_nothing(tally: Tally) -> None:
    runs, _ = _fail_everywhere(errno.EIO, "once", 0, every=9)
    tally("calls that failed, a quick sample", runs)


def test_a_failed_sync_poisons_the_handle_and_is_never_tried_again() -> None:
    disk = FailingFileSystem(MemoryFileSystem(_base()))
    queue = open_queue(disk)
    queue.push([b"lasts"])
    disk.fail_next("sync")
    with pytest.raises(StorageFailed):
        queue.push([b"in doubt"])
    assert disk.fired == 1
    calls = disk.calls
    for attempt in (
        lambda: queue.push([b"refused"]),
        lambda: queue.pop(1),
        lambda: queue.fork("late"),
        queue.clear,
        queue.sync,
    ):
        with pytest.raises(StorageFailed, match="close the queue and open it again"):
            attempt()
    queue.close()
    assert [call for call in disk.log[calls:] if call.startswith(("sync", "pwrite"))] == []
    queue = open_queue(disk)
    values = [value for _, value in queue.pop(-1).rows()]
    assert b"lasts" in values
    assert b"refused" not in values


@pytest.mark.parametrize("kind", ["allocate", "pwrite"])
def test_a_full_disk_leaves_the_handle_usable(kind: str) -> None:
    disk = FailingFileSystem(MemoryFileSystem(_base()), error=errno.ENOSPC, partial_bytes=80)
    queue = open_queue(disk)
    before = contents(queue)
    disk.fail_next(kind)
    with pytest.raises(DiskFull):
        # Rolls, so that it allocates.
        queue.push([(key, bytes(5_000)) for key in range(4)])
    assert disk.fired == 1
    assert contents(queue) == before
    queue.push([(-5, b"after")])
    assert queue.pop(1).rows() == [(-5, b"after")]
    queue.close()
    assert contents(open_queue(disk))[MAIN] == before[MAIN]
