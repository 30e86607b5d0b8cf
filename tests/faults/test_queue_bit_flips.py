"""Damage to a queue at rest: every bit of a small store flipped, files cut, deleted, scribbled on.

"abort" gives what was there, or a typed error with file and offset: never less in silence, never
anything else. "continue" gives all but the damaged record. What is derived may be damaged at will.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pytest

from tests.faults.bit_flips import (
    Damage,
    flipped_bits,
    swapped_blocks,
    truncations,
    wiped_blocks,
)
from tests.faults.checker import MAIN, Pair, UniqueValues
from tests.faults.driven_queue import contents, open_queue, use
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Content, Image
from tidemill.errors import Corrupt, TidemillError
from tidemill.files.format.record import Kind, split_place
from tidemill.files.journal import segment
from tidemill.files.journal.scan import Found, scan

Tally: TypeAlias = Callable[[str, int], None]
Contents: TypeAlias = dict[str, list[Pair]]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
DERIVED = (".summary", ".spine", "/lock")


class Store(NamedTuple):
    """A queue at rest."""

    image: Image
    contents: Contents
    pushed: list[Pair]  # ever, in the order of arrival
    records: dict[str, list[Found]]  # by the path of their segment


@cache
def small_store(*, closed: bool) -> Store:
    """Segments behind one that was retired, with all kinds of records and files.

    The one that crashed is small enough for every bit; the one that was closed has more segments.
    Opening states have few of the blanks that keep their copies apart: they are a bit like others.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment, "_BLOCK_BYTES", 512)
        return _make_store(closed=closed)


def _make_store(*, closed: bool) -> Store:
    fs = MemoryFileSystem()
    queue = open_queue(fs)
    core = queue._core
    values = UniqueValues()
    pushed: list[Pair] = []

    def push(*keys: int) -> None:
        pairs = values.pairs(keys)
        queue.push(pairs)
        pushed.extend(sorted(pairs, key=lambda pair: pair[0]))

    journal = core.folder.journal
    push(1, 2)
    journal.roll()
    push(5, 150)
    journal.roll()
    if closed:
        push(7)
        journal.roll()
    # Retires the first segment.
    queue.pop(2)
    end = queue.fork("a")
    end.pop(1)
    push(3, 3)
    if closed:
        end.fork("b")
    queue.fork("gone").remove()
    end.delete(150, 150)
    queue.pop(1)
    found = contents(queue)
    if closed:
        queue.close()
    image = fs.image()
    fs.die()
    return Store(image, found, pushed, _records(image))


def _records(image: Image) -> dict[str, list[Found]]:
    fs = MemoryFileSystem(image)
    records = {}
    for path in image.files():
        if path.endswith(".segment"):
            found = list(scan(fs.open(Path(path)), int(Path(path).stem), []))
            records[path] = [one for one in found if isinstance(one, Found)]
    return records


def test_the_small_store_has_everything() -> None:
    for closed in (False, True):
        store = small_store(closed=closed)
        active = store.records[max(store.records)]
        of_logs = {Kind.MARK, Kind.TRIM, Kind.NOTE, Kind.SKIP}
        expected = set(Kind) - of_logs - {Kind.QUARANTINE}
        assert {found.envelope.kind for found in active} == expected
        paths = list(store.image.files())
        for suffix in (".segment", ".summary", ".spine", "lock", "settings.json"):
            assert any(path.endswith(suffix) for path in paths), suffix
        assert len(store.records) == 3 if closed else 2
        assert {MAIN, "a"} <= set(store.contents)


def _files(*, closed: bool) -> list[str]:
    return [path.rpartition("/")[2] for path in small_store(closed=closed).image.files()]


def _abort(store: Store, damage: Damage) -> bool:
    """Open a damaged store and read it all; whether it was the same, the alternative being a typed
    error.
    """
    fs = damage.file_system()
    found: Contents | None = None
    problem: Corrupt | None = None
    try:
        found = contents(open_queue(fs))
    except Corrupt as error:
        problem = error
    fs.die()
    if problem is not None:
        assert problem.path is not None, f"{damage.words}: {problem} names no file"
        assert problem.offset is not None, f"{damage.words}: {problem} names no offset"
        return False
    assert found == store.contents, f"{damage.words}: {found} instead of {store.contents}"
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "name"),
    [(closed, name) for closed in (False, True) for name in _files(closed=closed)],
)
def test_no_flipped_bit_goes_unnoticed(closed: bool, name: str, tally: Tally) -> None:
    store = small_store(closed=closed)
    same = noticed = 0
    for damage in flipped_bits(store.image, chosen=lambda path: path.endswith(f"/{name}")):
        if _abort(store, damage):
            same += 1
        else:
            noticed += 1
    if name.endswith(DERIVED):
        assert not noticed
    tally("bit flips that harm nothing", same)
    tally("bit flips that are noticed", noticed)


def test_a_sample_of_flipped_bits_is_noticed() -> None:
    store = small_store(closed=False)
    damages = list(flipped_bits(store.image, tail_bytes=8))
    for damage in random.Random(1).sample(damages, 300):
        _abort(store, damage)


def _expected(store: Store, damage: Damage) -> tuple[Contents, bool]:
    """(what must be left without the damaged record, whether consumed items may come back)."""
    for found in store.records.get(damage.path, []):
        start = split_place(found.envelope.place)[1]
        if not start <= damage.offset < start + found.envelope.total_bytes:
            continue
        header = found.header
        if header is not None:
            lost = set(store.pushed[header.first_seq - 1 : header.first_seq - 1 + header.rows])
            left = {
                fork: [pair for pair in pairs if pair not in lost]
                for fork, pairs in store.contents.items()
            }
            return left, False
        return store.contents, found.envelope.kind is Kind.CUT
    return store.contents, False


def _continue(store: Store, damage: Damage, *, thorough: bool) -> None:
    """Open a damaged store without the damaged record; everything else must be there.

    A thorough look opens it once more and works with it.
    """
    expected, may_return = _expected(store, damage)
    fs = damage.file_system()
    try:
        queue = open_queue(fs, on_corruption="continue")
    except Corrupt:
        # Without its settings nobody knows what the folder is.
        assert damage.path.endswith("settings.json"), damage.words
        return
    found = contents(queue)
    for fork, pairs in found.items():
        order = {pair: at for at, pair in enumerate(store.pushed)}
        assert set(pairs) <= set(store.pushed), f"{damage.words}: invented in {fork}: {pairs}"
        in_order = sorted(set(pairs), key=lambda pair: (pair[0], order[pair]))
        assert pairs == in_order, f"{damage.words}: {fork} has {pairs}"
        left = set(expected.get(fork, []))
        whole = set(store.contents.get(fork, []))
        assert left <= set(pairs), f"{damage.words}: {fork} lost {left - set(pairs)}"
        assert may_return or set(pairs) <= whole, f"{damage.words}: {fork} got {pairs} back"
    assert found.keys() == store.contents.keys(), damage.words
    fs.die()
    if not thorough:
        return
    # The damage is set aside for good: nothing is left to complain about.
    queue = open_queue(fs)
    assert contents(queue) == found, damage.words
    use(queue, found)
    queue.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", _files(closed=False))
def test_a_flipped_bit_costs_its_own_record_only(name: str, tally: Tally) -> None:
    store = small_store(closed=False)
    count = 0
    flips = flipped_bits(store.image, chosen=lambda path: path.endswith(f"/{name}"))
    draw = random.Random(name)
    chosen = 0
    for number, damage in enumerate(flips):
        # What is left behind is looked at for one bit of each byte: they share their checksum.
        _continue(store, damage, thorough=SOAK or number % 8 == chosen)
        count += 1
        if number % 8 == 7:
            chosen = draw.randrange(8)
    tally("bit flips that cost their own record only", count)


def _derived(path: str) -> bool:
    return path.endswith(DERIVED)


def _scribbles(image: Image, times: int) -> Iterator[Damage]:
    """Derived files overwritten at random, wholly or in part, or grown."""
    draw = random.Random(7)
    for path, inode in image.files().items():
        if not _derived(path):
            continue
        content = image.contents[inode].whole()
        for turn in range(times):
            data = bytearray(content)
            start = draw.randrange(len(data))
            stop = draw.randrange(start, len(data)) + 1
            data[start:stop] = draw.randbytes(draw.choice([stop - start, stop - start + 64]))
            damaged = Content(bytes(data).rstrip(b"\0"), len(data))
            yield Damage(path, start, f"{path} scribbled, {turn}", image.replaced(inode, damaged))


def _deletions(image: Image) -> Iterator[Damage]:
    """Derived files deleted, each alone and all of them."""
    paths = [path for path in image.files() if _derived(path)]
    for chosen in [*([path] for path in paths), paths]:
        fs = MemoryFileSystem(image)
        for path in chosen:
            fs.unlink(Path(path))
        yield Damage(chosen[0], 0, f"{chosen} deleted", fs.image())


@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_derived_files_may_be_damaged_at_will(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    count = 0
    for damages in (
        truncations(store.image, step=16, chosen=_derived),
        wiped_blocks(store.image, block=64, chosen=_derived),
        swapped_blocks(store.image, block=64, chosen=_derived),
        _scribbles(store.image, 10),
        _deletions(store.image),
    ):
        for damage in damages:
            assert _abort(store, damage), damage.words
            count += 1
    tally("damages to derived files", count)


def test_a_summary_that_goes_while_the_queue_is_open_is_made_again() -> None:
    store = small_store(closed=True)
    for spoil in ("delete", "scribble"):
        fs = MemoryFileSystem(store.image)
        queue = open_queue(fs)
        for path in map(Path, store.image.files()):
            if path.suffix == ".summary" and spoil == "delete":
                fs.unlink(path)
            elif path.suffix == ".summary":
                fs.open(path, write=True).pwrite([bytes(4)], fs.open(path).size() - 40)
        found = contents(queue)
        assert found == store.contents
        queue._core.maintenance.run_round()
        use(queue, found)
        queue.close()
        open_queue(fs).close()


def _is_segment(path: str) -> bool:
    return path.endswith(".segment")


def _misplaced_records(store: Store) -> Iterator[Damage]:
    """Every record written over every other of its length, as a misdirected write leaves it."""
    for path, records in store.records.items():
        inode = store.image.files()[path]
        content = store.image.contents[inode]
        whole = content.whole()
        spans = [
            slice(start, start + found.envelope.total_bytes)
            for found in records
            for start in (split_place(found.envelope.place)[1],)
        ]
        for source, target in permutations(spans, 2):
            if source.stop - source.start == target.stop - target.start:
                data = bytearray(whole)
                data[target] = whole[source]
                damaged = Content(bytes(data).rstrip(b"\0"), content.size)
                words = f"{path}: the record at {source.start} also at {target.start}"
                yield Damage(path, target.start, words, store.image.replaced(inode, damaged))


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_lost_and_misplaced_blocks_are_noticed(closed: bool, tally: Tally) -> None:
    store = small_store(closed=closed)
    count = 0
    step = 1 if SOAK else 16
    for damages in (
        truncations(store.image, step=step, chosen=_is_segment),
        wiped_blocks(store.image, block=64, chosen=_is_segment),
        wiped_blocks(store.image, block=512, chosen=_is_segment),
        swapped_blocks(store.image, block=64 if SOAK else 256, chosen=_is_segment),
        _misplaced_records(store),
    ):
        for damage in damages:
            _abort(store, damage)
            count += 1
    tally("blocks and records lost or misplaced", count)


@pytest.mark.slow
def test_damage_without_a_spine_is_no_torn_tail() -> None:
    """Power went, the spine with it, and a bit flipped before what a later record calls synced."""
    store = small_store(closed=True)
    fs = MemoryFileSystem(store.image)
    for path in map(Path, store.image.files()):
        if path.suffix == ".spine":
            fs.unlink(path)
    image = fs.image()
    active, records = max(store.records.items())
    # Nothing but the spine vouches for the last record, so it is left alone.
    limit = split_place(records[-1].envelope.place)[1]
    for damage in flipped_bits(image, chosen=lambda one: one == active):
        if damage.offset < limit and damage.offset % 8 == 0:
            _abort(store, damage)


def test_a_missing_segment_is_noticed() -> None:
    for closed in (False, True):
        store = small_store(closed=closed)
        for path in map(Path, store.records):
            fs = MemoryFileSystem(store.image)
            fs.unlink(path)
            with pytest.raises(TidemillError, match="missing"):
                open_queue(fs)
            fs.die()
            queue = open_queue(fs, on_corruption="continue")
            found = contents(queue)
            assert set(found[MAIN]) <= set(store.contents[MAIN]) | set(store.pushed)
            use(queue, found)
            queue.close()
            open_queue(fs).close()
