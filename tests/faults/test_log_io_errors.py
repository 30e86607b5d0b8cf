"""A disk that fails at every call of a log's, once or from then on: nothing promised is lost.

After an error the log is either as good as before, and the operation never happened; or its
publisher takes no more, because nobody knows what is on disk. A full disk is of the first kind.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

import pytest

from tests.faults.checker import ACKNOWLEDGED, ATTEMPTED, Violation, bounds
from tests.faults.driven_log import Contents, DrivenLog, contents, open_log
from tests.faults.io_errors import CHANGES, FailingFileSystem, Stickiness
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.test_log_crash_states import judge
from tests.faults.trace import Image
from tidemill.errors import DiskFull, TidemillError

# Thousands of small logs are opened.
pytestmark = pytest.mark.slow

Tally: TypeAlias = Callable[[str, int], None]

STEPS: list[Callable[[DrivenLog], None]] = [
    lambda log: log.append(1),
    lambda log: log.append(2, number=7),
    lambda log: log.append(3, length=5_000),
    lambda log: log.ack(),
    lambda log: log.note("s3://bucket"),
    lambda log: log.append(3, length=5_000),
    lambda log: log.trim(8),
    lambda log: log.claim(),
    lambda log: log.append(2),
    lambda log: log.reopen(),
    lambda log: log.append(1, number=8),
]


@cache
def _base() -> Image:
    log = DrivenLog()
    log.append(3)
    log.append(3, length=5_000)
    log.ack()
    log.log.close()
    return log.fs.image()


class _Run:
    """The steps on a disk that fails, and what came of them."""

    def __init__(self, **fault: object) -> None:
        self.errors: list[TidemillError] = []
        self.went_on = False
        self.log = DrivenLog.__new__(DrivenLog)
        self.log.fs = MemoryFileSystem(_base())
        self.disk = FailingFileSystem(self.log.fs, **fault)  # type: ignore[arg-type]
        self._go()

    def _go(self) -> None:
        log = self.log
        log.disk, log.sync, log.base, log.acked, log._rows = self.disk, "full", 0, 6, 100
        log.states = [_contents_of_base()]
        log.fs.mark(ATTEMPTED, 0, promise=False)
        log.fs.mark(ACKNOWLEDGED, 0)
        try:
            log._open()
        except TidemillError as error:
            self.errors.append(error)
            return
        for step in STEPS:
            before = len(log.states)
            try:
                step(log)
            except TidemillError as error:
                self.errors.append(error)
                if not isinstance(error, DiskFull) or log.log._is_closed:
                    return
                # Nothing happened, and the log goes on.
                del log.states[before:]
            else:
                self.went_on = bool(self.errors)

    def judge(self) -> None:
        """A healthy disk has all that was acknowledged."""
        fs = MemoryFileSystem(self.log.fs.image())
        fs.boot = self.log.fs.boot
        acknowledged, attempted = bounds(self.log.fs.trace.operations)
        attempted = min(attempted, len(self.log.states) - 1)
        acknowledged = min(acknowledged, attempted)
        judge(fs, self.log, acknowledged, attempted, readers_lag=True)


@cache
def _contents_of_base() -> Contents:
    with open_log(MemoryFileSystem(_base()), read_only=True) as log:
        return contents(log)


def _calls(kinds: frozenset[str] | None) -> int:
    dry = _Run(kinds=kinds)
    assert dry.errors == []
    dry.judge()
    return dry.disk.calls


@pytest.mark.parametrize("sticky", ["once", "changes", "all"])
def test_every_change_may_fail(sticky: Stickiness, tally: Tally) -> None:
    calls = _calls(CHANGES)
    for number in range(1, calls + 1):
        run = _Run(fail_at=number, sticky=sticky, kinds=CHANGES)
        assert run.disk.fired, number
        try:
            run.judge()
        except (Violation, TidemillError) as problem:
            words = f"{sticky}: call {number}, {run.disk.log[number - 1]}: {problem}"
            raise AssertionError(words) from problem
    assert calls > 100
    tally("failed calls of a log", calls)


def test_a_full_disk_leaves_a_log_that_works(tally: Tally) -> None:
    kinds = frozenset({"allocate", "pwrite", "create"})
    calls = _calls(kinds)
    went_on = 0
    for number in range(1, calls + 1):
        run = _Run(fail_at=number, error=errno.ENOSPC, kinds=kinds)
        try:
            run.judge()
        except (Violation, TidemillError) as problem:
            words = f"call {number}, {run.disk.log[number - 1]}: {problem}"
            raise AssertionError(words) from problem
        went_on += run.went_on
    assert went_on > 5
    tally("full disks under a log", calls)


def test_a_write_that_stops_halfway_is_taken_back(tally: Tally) -> None:
    kinds = frozenset({"pwrite"})
    calls = _calls(kinds)
    for number in range(1, calls + 1):
        run = _Run(fail_at=number, error=errno.ENOSPC, kinds=kinds, partial_bytes=100)
        try:
            run.judge()
        except (Violation, TidemillError) as problem:
            words = f"call {number}, {run.disk.log[number - 1]}: {problem}"
            raise AssertionError(words) from problem
    tally("torn writes of a log", calls)
