"""A disk that fails at any call of a shovel: no item is in neither queue, not after a power cut
either.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from itertools import product
from typing import NamedTuple, TypeAlias

import pytest

from tests.faults.checker import Violation
from tests.faults.driven_pair import SHOVELED, DrivenPair, open_pair
from tests.faults.driven_queue import contents, end_of
from tests.faults.io_errors import FailingFileSystem, Stickiness
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.pending import Pending
from tests.faults.test_shovel_crash_states import FILLS
from tests.faults.trace import Image, Mark
from tidemill.errors import DiskFull, TidemillError

Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
FAULTS: list[tuple[int, Stickiness]] = [
    (errno.EIO, "once"),
    (errno.EIO, "changes"),
    (errno.ENOSPC, "once"),
    (errno.ENOSPC, "kind"),
]


class _Run(NamedTuple):
    """A shovel on a disk that fails, and what came of it."""

    fs: MemoryFileSystem
    disk: FailingFileSystem
    opened: int  # calls it took to open the queues
    error: TidemillError | None


def _run(pair: DrivenPair, fail_at: int | None, **fault: object) -> _Run:
    """Fail the call `fail_at` of the shovel itself."""
    fs = MemoryFileSystem(pair.fs.trace.initial)
    disk = FailingFileSystem(fs, **fault)  # type: ignore[arg-type]
    source, target = open_pair(disk)
    opened = disk.calls
    disk.fail_later(fail_at)
    try:
        end_of(source, pair.end).shovel(target)
    except TidemillError as error:
        return _Run(fs, disk, opened, error)
    fs.mark(SHOVELED)
    return _Run(fs, disk, opened, None)


@pytest.mark.slow
@pytest.mark.parametrize(("what", "fault"), list(product(FILLS, FAULTS)), ids=str)
def test_an_error_at_any_call_of_a_shovel_loses_nothing(
    what: str, fault: tuple[int, Stickiness], tally: Tally
) -> None:
    number, sticky = fault
    fill, end = FILLS[what]
    pair = DrivenPair(fill, end=end)
    dry = _run(pair, None)
    calls = dry.disk.calls - dry.opened
    assert dry.error is None
    assert calls > 20
    draw = random.Random(f"{what} {fault}")
    errors = 0
    for fail_at in range(1, calls + 1):
        run = _run(pair, fail_at, error=number, sticky=sticky)
        words = f"call {fail_at}, {dry.disk.log[dry.opened + fail_at - 1]}: {run.error}"
        assert run.disk.fired, words
        errors += run.error is not None
        run.disk.heal()
        run.fs.die()
        marks = [one for one in run.fs.trace.operations if isinstance(one, Mark)]
        try:
            for image in _cut_off(run.fs, draw):
                pair.judge(MemoryFileSystem(image), marks, power_cut=True)
            pair.judge(run.fs, marks, power_cut=False)
        except (Violation, TidemillError) as problem:
            raise AssertionError(f"{words}: {problem}") from problem
    assert errors > calls // 4
    tally("calls of a shovel that failed", calls)


def _cut_off(fs: MemoryFileSystem, draw: random.Random) -> list[Image]:
    """What a power cut may leave of all that was not synced: nothing, or any part of it."""
    pending = Pending(fs.trace.initial)
    for operation in fs.trace.operations:
        pending.apply(operation)
    count = len(pending.units)
    some = [draw.getrandbits(count) for _ in range(50 if SOAK else 1) if count]
    return [pending.image(kept, None) for kept in {0, *some}]


@pytest.mark.parametrize("what", FILLS)
def test_after_a_full_disk_both_queues_go_on(what: str) -> None:
    """A full disk leaves both handles as good as before, and the shovel can be tried again."""
    fill, end = FILLS[what]
    pair = DrivenPair(fill, end=end)
    disk = FailingFileSystem(pair.fs, kinds=frozenset({"allocate"}), error=errno.ENOSPC)
    pair.source.close()
    pair.target.close()
    source, target = open_pair(disk)
    refused = 0
    for fail_at in range(1, 4):
        # A segment that cannot be had whole is asked for in part, so the disk has to stay full.
        disk.fail_later(fail_at, sticky="kind")
        try:
            end_of(source, end).shovel(target)
        except DiskFull:
            refused += 1
        disk.heal()
    end_of(source, end).shovel(target)
    assert refused
    assert len(end_of(source, end)) == 0
    for fork, pairs in contents(target).items():
        # A chunk whose take found no room was pushed already, and comes twice.
        assert set(pairs) == {*pair.moving, *pair.target_before[fork]}
