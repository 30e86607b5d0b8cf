"""A repair that crashes, or whose disk fails, costs nothing: the next one finishes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import TypeAlias

import pytest

import tidemill as tm
from tests.faults.bit_flips import Damage, flipped_bits
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_queue import BOOT, ROOT, contents, digest, open_queue
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.test_doctor_bit_flips import expected_left
from tests.faults.test_queue_bit_flips import SOAK, Store, small_store
from tidemill.files.report import Severity

Tally: TypeAlias = Callable[[str, int], None]

STATES_MAX = 4_000 if SOAK else 60  # of each damage


def _damages(store: Store, count: int, seed: int) -> Iterator[Damage]:
    """Flipped bits that the doctor has to set aside, spread over the journal."""
    draw = random.Random(seed)
    segments = [
        damage
        for damage in flipped_bits(store.image, tail_bytes=0)
        if damage.path.endswith(".segment") and draw.random() < 0.02
    ]
    draw.shuffle(segments)
    found = 0
    for damage in segments:
        report = tm.doctor.verify(ROOT, file_system=damage.file_system())
        if report.worst is Severity.DAMAGE:
            yield damage
            found += 1
        if found == count:
            return


def _check_mended(
    store: Store, damage: Damage, fs: MemoryFileSystem, words: str, mended: set[bytes]
) -> None:
    """Repair again: what was not damaged is there, and what was is in the quarantine. A disk of the
    same damage that was mended before is not mended again: it would be done in the same way.
    """
    fs.boot = BOOT
    disk = digest(fs.image(), with_head=True)
    if disk in mended:
        return
    mended.add(disk)
    report = tm.doctor.repair(ROOT, set_aside=True, file_system=fs)
    fs.die()
    assert report.worst is not Severity.DAMAGE, f"{words}: {report}"
    expected, may_return = expected_left(store, damage)
    found = contents(open_queue(fs))
    fs.die()
    assert found.keys() == store.contents.keys(), words
    for fork, pairs in found.items():
        lost = set(expected[fork]) - set(pairs)
        assert not lost, f"{words}: {fork} lost {lost}"
        if not may_return:
            assert set(pairs) <= set(store.contents[fork]), f"{words}: {fork} got {pairs}"
        assert len(set(pairs)) == len(pairs), f"{words}: {fork} has items twice"
    gone = {pair for fork in found for pair in set(store.contents[fork]) - set(found[fork])}
    if gone:
        assert tm.doctor.quarantined(ROOT, file_system=fs), f"{words}: {gone} is nowhere"


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_a_crash_at_any_moment_of_a_repair_costs_nothing(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    states = 0
    for damage in _damages(store, 40 if SOAK else 5, seed=7):
        fs = damage.file_system()
        mended: set[bytes] = set()
        tm.doctor.repair(ROOT, set_aside=True, file_system=fs)
        for state in enumerate_states(fs.trace, budget=STATES_MAX):
            _check_mended(store, damage, MemoryFileSystem(state.image), damage.words, mended)
            states += 1
    assert states > 100
    tally("states that a crash of a repair may leave", states)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_an_error_at_any_call_of_a_repair_costs_nothing(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    errors = disks = 0
    for damage in _damages(store, 20 if SOAK else 3, seed=8):
        mended: set[bytes] = set()
        counting = FailingFileSystem(damage.file_system())
        tm.doctor.repair(ROOT, set_aside=True, file_system=counting)
        for number in range(1, counting.calls + 1):
            disk = damage.file_system()
            disk.boot = BOOT
            failing = FailingFileSystem(disk, fail_at=number)
            words = f"{damage.words}, call {number}"
            try:
                tm.doctor.repair(ROOT, set_aside=True, file_system=failing)
            except (tm.SurroundingsError, tm.Corrupt):
                pass  # It says so and stops; what counts is what the next one finds.
            assert failing.fired, words
            disk.die()
            _check_mended(store, damage, disk, words, mended)
            errors += 1
        disks += len(mended)
    assert errors > 20
    assert disks > 20
    tally("calls of a repair that failed", errors)
