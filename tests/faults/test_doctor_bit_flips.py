"""The doctor and every kind of damage: it is told without a crash, and costs nothing else."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

import tidemill as tm
from tests.faults.bit_flips import Damage, flipped_bits, swapped_blocks, truncations, wiped_blocks
from tests.faults.checker import MAIN
from tests.faults.driven_queue import ROOT, contents, open_queue, use
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.test_queue_bit_flips import DERIVED, SOAK, Store, small_store
from tidemill.files.format.record import Kind, split_place
from tidemill.files.report import Report, Severity

Tally: TypeAlias = Callable[[str, int], None]


def _verify(damage: Damage) -> Report:
    """Verify a damaged disk, which must stay as it is."""
    fs = damage.file_system()
    report = tm.doctor.verify(ROOT, file_system=fs)
    assert not fs.trace.operations, f"{damage.words}: the disk was changed"
    str(report), report.to_json()
    return report


def _end(store: Store, path: str) -> int:
    last = store.records[path][-1].envelope
    return split_place(last.place)[1] + last.total_bytes


def _matters(store: Store, damage: Damage) -> bool:
    """Whether the damage lies where the queue keeps something."""
    if damage.path.endswith(".segment"):
        return damage.offset < _end(store, damage.path)
    # What is in the lock is a hint for people, of which digits may change unseen.
    return not damage.path.endswith("/lock")


def _sample(damages: Iterator[Damage], share: float, seed: int) -> Iterator[Damage]:
    draw = random.Random(seed)
    return (damage for damage in damages if SOAK or draw.random() < share)


def _check_told(store: Store, damages: Iterator[Damage]) -> Counter[str]:
    told: Counter[str] = Counter()
    for damage in damages:
        report = _verify(damage)
        # Spaces and the like in the settings are no part of what they say.
        if not report.findings and damage.path.endswith("settings.json"):
            assert contents(open_queue(damage.file_system())) == store.contents
        elif not report.findings:
            assert not _matters(store, damage), f"{damage.words}: not told"
        told.update(one.severity.value for one in report.findings)
        if damage.path.endswith(DERIVED):
            assert report.worst is not Severity.DAMAGE, f"{damage.words}: {report}"
        if report.worst is not Severity.DAMAGE:
            # Whatever is no damage must cost nothing.
            found = contents(open_queue(damage.file_system()))
            assert found == store.contents, f"{damage.words}: {report}"
    return told


@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_a_sample_of_flipped_bits_is_told(closed: bool) -> None:
    store = small_store(closed=closed)
    told = _check_told(store, _sample(flipped_bits(store.image, tail_bytes=8), 0.004, 1))
    assert told["damage"] > 10
    assert told["warning"] > 10


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_every_flipped_bit_is_told(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    told = _check_told(store, _sample(flipped_bits(store.image, tail_bytes=16), 1 / 50, 2))
    for severity, number in told.items():
        tally(f"bit flips that the doctor tells as {severity}", number)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_lost_and_misplaced_blocks_are_told(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    count = 0
    for damages in (
        truncations(store.image, step=64),
        wiped_blocks(store.image, block=64),
        wiped_blocks(store.image, block=512),
        swapped_blocks(store.image, block=256),
    ):
        for damage in _sample(damages, 0.1, 3):
            report = _verify(damage)
            if report.worst is not Severity.DAMAGE and not _is_last_operation(store, damage):
                found = contents(open_queue(damage.file_system()))
                assert found == store.contents, f"{damage.words}: {report}"
            count += 1
    tally("lost and misplaced blocks that the doctor looked at", count)


def _is_last_operation(store: Store, damage: Damage) -> bool:
    """Whether it may be taken for a torn tail, since nothing but the spine vouches for it."""
    if not damage.path.endswith(".segment"):
        return False
    last = store.records[damage.path][-1].envelope
    return damage.path == max(store.records) and damage.offset >= split_place(last.place)[1]


def _check_repair(store: Store, damage: Damage) -> None:
    """Repair a damaged disk: it opens, and has all that was not damaged."""
    expected, may_return = expected_left(store, damage)
    fs = damage.file_system()
    before = tm.doctor.verify(ROOT, file_system=fs)
    fs.die()
    tm.doctor.repair(ROOT, file_system=fs)
    fs.die()
    untouched = tm.doctor.verify(ROOT, file_system=fs)
    fs.die()
    if before.worst is Severity.DAMAGE:
        assert untouched.worst is Severity.DAMAGE, f"{damage.words}: damage went untold"
    if damage.path.endswith("settings.json") and before.worst is Severity.DAMAGE:
        with pytest.raises(tm.Corrupt):
            tm.doctor.repair(ROOT, set_aside=True, file_system=fs)
        return
    report = tm.doctor.repair(ROOT, set_aside=True, file_system=fs)
    fs.die()
    left = {one.code for one in report.findings if one.severity is not Severity.NOTE}
    # What lies between records, or is a hint, is told and left as it is.
    assert left <= {"padding"}, f"{damage.words}: {report}"
    queue = open_queue(fs)
    found = contents(queue)
    assert found.keys() == store.contents.keys(), damage.words
    for fork, pairs in found.items():
        lost = set(expected.get(fork, [])) - set(pairs)
        assert not lost, f"{damage.words}: {fork} lost {lost}"
        if not may_return:
            assert set(pairs) <= set(store.contents[fork]), f"{damage.words}: {fork} got {pairs}"
    assert report.forks == {("" if fork == MAIN else fork): len(found[fork]) for fork in found}
    use(queue, found)
    queue.close()
    assert tm.doctor.verify(ROOT, file_system=fs).worst is not Severity.DAMAGE


def expected_left(store: Store, damage: Damage) -> tuple[dict[str, list[tuple[int, bytes]]], bool]:
    """(what must be left, whether consumed items may come back)."""
    for found in store.records.get(damage.path, []):
        start = split_place(found.envelope.place)[1]
        if not start <= damage.offset < start + found.envelope.total_bytes:
            continue
        if found.header is None:
            return store.contents, found.envelope.kind is Kind.CUT
        first = found.header.first_seq - 1
        lost = set(store.pushed[first : first + found.header.rows])
        left = {
            fork: [pair for pair in pairs if pair not in lost]
            for fork, pairs in store.contents.items()
        }
        return left, False
    return store.contents, False


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_a_repair_keeps_what_was_not_damaged(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    count = 0
    for damage in _sample(flipped_bits(store.image, tail_bytes=8), 0.001, 4):
        _check_repair(store, damage)
        count += 1
    tally("bit flips that were repaired", count)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_a_repair_of_many_more_keeps_what_was_not_damaged(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    count = 0
    for damage in _sample(flipped_bits(store.image, tail_bytes=8), 0.006, 5):
        _check_repair(store, damage)
        count += 1
    tally("bit flips that were repaired", count)


def _rubbish(store: Store) -> Iterator[Damage]:
    """Derived files emptied, filled with rubbish, deleted."""
    draw = random.Random(6)
    for path in store.image.files():
        if not path.endswith(DERIVED):
            continue
        for what in ("empty", "rubbish", "gone"):
            fs = MemoryFileSystem(store.image)
            fs.unlink(Path(path))
            if what != "gone":
                file = fs.open(Path(path), create=True)
                file.pwrite([draw.randbytes(300) if what == "rubbish" else b""], 0)
            yield Damage(path, 0, f"{path} is {what}", fs.image())


@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_derived_files_are_made_again_whatever_became_of_them(closed: bool) -> None:
    store = small_store(closed=closed)
    for damage in _rubbish(store):
        assert _verify(damage).worst is not Severity.DAMAGE, damage.words
        fs = damage.file_system()
        report = tm.doctor.repair(ROOT, file_system=fs)
        fs.die()
        assert report.worst is None, f"{damage.words}: {report}"
        assert contents(open_queue(fs)) == store.contents, damage.words
