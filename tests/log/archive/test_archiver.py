"""Archiving: nothing lost, nothing twice, whatever fails and whoever else does the same."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest

from tests.log.archive.faulty_objects import Away, Crash, Fault, FaultyLog, FaultyObjects, When
from tests.log.contract.writing import append, read_all
from tidemill.batch import DEFAULT
from tidemill.errors import (
    Corrupt,
    Fenced,
    InvalidInput,
    NotAnArchive,
    TidemillError,
    Trimmed,
    Unavailable,
)
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archived import Archived
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.manifest import NAME, PAGES, SEGMENTS, Segment, segment_folder
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.notes import ARCHIVE_NOTE
from tidemill.log.archive.objects import ObjectStore, Stored
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.contract import Ends, LogStore
from tidemill.log.memory import MemoryLog, Shelf
from tidemill.log.tiered import TieredLog

SMALL = Sizes(segment_rows=4, group_rows=3, manifest_segments=2)
WHENS: tuple[When, ...] = ("before", "after")
ROWS = [b"%d" % number for number in range(1, 31)]


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects.of(f"test-{secrets.token_hex(8)}")


@pytest.fixture
def shelf() -> Shelf:
    shelf = Shelf()
    fill(shelf)
    return shelf


def fill(shelf: Shelf, rows: list[bytes] = ROWS) -> None:
    with shelf.open() as log:
        writer = log.claim()
        for start in range(0, len(rows), 5):
            append(writer, rows[start : start + 5])


def archiver(log: LogStore, objects: ObjectStore, sizes: Sizes = SMALL) -> Archiver:
    return Archiver(log, Archive(objects), sizes)


def stray(objects: ObjectStore) -> set[str]:
    """The objects that the manifest does not name."""
    archive = Archive(objects)
    manifest = archive.look()
    named = {segment.file for segment in archive.segments(manifest)}
    named |= {page.file for page in manifest.pages}
    return {*objects.names(SEGMENTS), *objects.names(PAGES)} - named


def check(shelf: Shelf, objects: ObjectStore, rows: list[bytes] = ROWS) -> None:
    """All rows are there, once, in order; those that the store lacks are in the archive."""
    with TieredLog(shelf.open()) as log:
        assert read_all(log, 1) == rows
        assert log.ends() == Ends(1, len(rows) + 1)


def test_rows_are_moved_and_nobody_notices(shelf: Shelf, objects: MemoryObjects) -> None:
    log = shelf.open()
    steps: list[Archived] = []
    done = archiver(log, objects).run(31, steps.append)
    assert (done.first, done.next, done.rows, done.segments) == (1, 31, 30, 8)
    assert [step.next for step in steps] == [5, 9, 13, 17, 21, 25, 29, 31]
    assert done.bytes == sum(objects.get(name).data.size for name in objects.names(SEGMENTS))
    assert shelf.frames == []
    assert log.notes()[ARCHIVE_NOTE] == objects.url
    check(shelf, objects)
    assert stray(objects) == set()
    manifest = Archive(objects).look()
    assert (manifest.count, len(manifest.segments)) == (8, 4)
    assert [page.segments for page in manifest.pages] == [2, 2]


def test_a_pass_goes_on_where_the_last_one_ended(shelf: Shelf, objects: MemoryObjects) -> None:
    log = shelf.open()
    mine = archiver(log, objects)
    assert mine.run(11).next == 11
    assert log.ends() == Ends(1, 31)
    check(shelf, objects)
    assert mine.run(11) == Archived(11, 11, 0, 0)
    assert mine.run(31).first == 11
    check(shelf, objects)
    more = [b"more%d" % number for number in range(7)]
    fill(shelf, more)
    done = archiver(log, objects).run(38)
    assert (done.first, done.next, done.segments) == (31, 38, 2)
    check(shelf, objects, ROWS + more)


def test_a_schema_that_grows_begins_a_segment(objects: MemoryObjects) -> None:
    shelf = Shelf()
    wide = pa.schema([*DEFAULT, ("city", pa.utf8())])
    old = shelf.open()
    append(old.claim(), [b"a", b"b"])
    mine = archiver(old, objects)
    mine.run(3)
    new = shelf.open(wide)
    append(new.claim(), [{"value": b"c", "city": "Ghent"}], schema=wide)
    archiver(new, objects).run(4)
    assert len(Archive(objects).look().versions) == 2
    for hot in (shelf.open(), old):
        assert read_all(TieredLog(hot)) == [
            {"value": b"a", "city": None},
            {"value": b"b", "city": None},
            {"value": b"c", "city": "Ghent"},
        ]


def test_a_newer_archiver_fences_the_older(shelf: Shelf, objects: MemoryObjects) -> None:
    log = shelf.open()
    old = archiver(log, objects)
    old.run(5)
    new = archiver(log, objects)
    with pytest.raises(Fenced, match="took over"):
        old.run(31)
    with pytest.raises(Fenced):
        old.sweep()
    new.run(31)
    check(shelf, objects)
    assert stray(objects) == set()


@pytest.mark.slow
def test_who_is_fenced_between_two_steps_adds_nothing(shelf: Shelf, objects: MemoryObjects) -> None:
    """At each call to the store another archiver does all of the work."""
    for at in range(200):
        another = Shelf()
        fill(another)
        place = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
        fault = Overtaken(another, place, at)
        try:
            archiver(another.open(), FaultyObjects(place, fault)).run(31)
        except Fenced:
            assert fault.is_over
        check(another, place)
        archiver(another.open(), place).run(31)
        assert stray(place) == set()
        if not fault.is_over:
            return
    pytest.fail("the archiver never comes to an end")


class Overtaken(Fault):
    """Another archiver does its work in the middle of a call."""

    def __init__(self, shelf: Shelf, objects: ObjectStore, at: int) -> None:
        super().__init__(at, "before")
        self._shelf, self._objects = shelf, objects

    def step(self, call: str, when: When) -> None:
        with suppress(Crash):
            before = self.is_over
            super().step(call, when)
            return
        assert not before
        archiver(self._shelf.open(), self._objects).run(31)


def faults(
    kind: type[BaseException],
) -> Iterator[tuple[Shelf, MemoryObjects, Fault, BaseException]]:
    """A pass of an archiver with a fault at each of its calls, before and after it took effect."""
    for when in WHENS:
        for at in range(200):
            shelf = Shelf()
            fill(shelf)
            objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
            fault = Fault(at, when, kind)
            failure: BaseException | None = None
            try:
                archiver(FaultyLog(shelf, fault), FaultyObjects(objects, fault)).run(31)
            except (Crash, TidemillError) as error:
                failure = error
            if at >= len(fault.calls):
                break
            yield shelf, objects, fault, failure or Crash()


@pytest.mark.slow
def test_a_crash_at_any_step_loses_nothing_and_leaves_nothing() -> None:
    steps = set()
    for shelf, objects, fault, _ in faults(Crash):
        steps.add((fault.calls[-1].split()[0], fault.when))
        check(shelf, objects)
        done = archiver(shelf.open(), objects).run(31)
        assert done.next == 31, fault
        check(shelf, objects)
        assert stray(objects) == set(), fault
        assert shelf.frames == [], fault
    expected = {"get", "put", "replace", "list", "release", "note"}
    assert {call for call, _ in steps} >= expected
    assert {call for call, when in steps if when == "after"} >= expected - {"list"}


@pytest.mark.slow
def test_a_store_that_fails_at_any_step_loses_nothing() -> None:
    """It answers 500 before, or times out after it has accepted."""
    seen = 0
    for shelf, objects, fault, failure in faults(Away):
        seen += 1
        if not isinstance(failure, Crash):
            assert isinstance(failure, Unavailable), fault
        check(shelf, objects)
        archiver(shelf.open(), objects).run(31)
        check(shelf, objects)
        assert stray(objects) == set(), fault
    assert seen > 40


def test_a_swap_whose_answer_is_lost_is_looked_up(shelf: Shelf, objects: MemoryObjects) -> None:
    """Each replacement of the manifest takes effect and says that it did not."""

    class Forgetful(FaultyObjects):
        lost = 0

        def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
            tag = super().replace(name, data, tag)
            if data.size % 2 or self.lost % 3 == 2:
                self.lost += 1
                return tag
            self.lost += 1
            raise Away("the answer was lost")

    forgetful = Forgetful(objects, Fault(-1, "before"))
    archive = Archive(forgetful)
    mine = Archiver(shelf.open(), archive, SMALL)
    assert mine.run(31).next == 31
    assert forgetful.lost > 8
    check(shelf, objects)
    assert Archive(objects).look().count == 8


def test_what_is_not_read_back_as_it_was_written_is_kept(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    class Rotten(FaultyObjects):
        def put_new(self, name: str, data: pa.Buffer) -> str:
            if name != NAME:
                changed = bytearray(data.to_pybytes())
                changed[len(changed) // 3] ^= 1
                data = pa.py_buffer(bytes(changed))
            return super().put_new(name, data)

    mine = archiver(shelf.open(), Rotten(objects, Fault(-1, "before")))
    with pytest.raises(Corrupt, match="kept in the log"):
        mine.run(31)
    assert len(shelf.frames) == 6
    assert Archive(objects).look().count == 0
    archiver(shelf.open(), objects).run(31)
    check(shelf, objects)
    assert stray(objects) == set()


def test_what_cannot_be_read_back_yet_is_kept(shelf: Shelf, objects: MemoryObjects) -> None:
    class Late(FaultyObjects):
        def get(self, name: str) -> Stored:
            return super().get("nothing" if name.startswith(SEGMENTS) else name)

    with pytest.raises(Unavailable, match="read back"):
        archiver(shelf.open(), Late(objects, Fault(-1, "before"))).run(31)
    assert len(shelf.frames) == 6


def test_a_stale_listing_removes_nothing_that_is_named(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    """It lacks what was put a moment ago, and has what was deleted long since."""

    class Stale(FaultyObjects):
        def names(self, folder: str, *, after: str = "") -> Iterator[str]:
            yield f"{segment_folder(1)}/1-abcd.parquet"
            yield from list(super().names(folder, after=after))[1::2]

    orphan = f"{segment_folder(3)}/0-abcd.parquet"
    objects.put_new(orphan, pa.py_buffer(b"left by a crash"))
    for _ in range(3):
        archiver(shelf.open(), Stale(objects, Fault(-1, "before"))).run(31)
        check(shelf, objects)
    archiver(shelf.open(), objects).sweep(everywhere=True)
    assert stray(objects) == set()
    check(shelf, objects)


def test_a_large_archive_is_swept_as_a_whole_when_told_to(objects: MemoryObjects) -> None:
    """An archiver that takes over looks at the newest part alone once there are many pages."""
    shelf = Shelf()
    rows = [b"%d" % number for number in range(1, 101)]
    fill(shelf, rows)
    sizes = Sizes(segment_rows=2, manifest_segments=1)
    archiver(shelf.open(), objects, sizes).run(101)
    assert len(Archive(objects).look().pages) > 16
    old, new = (f"{segment_folder(first)}/1-abcd.parquet" for first in (7, 99))
    page = f"{PAGES}/{5:020}-1-abcd.json"
    part = f"{segment_folder(7)}/1-abce.parquet.1f2e.part"
    for name in (old, new, page, part):
        objects.put_new(name, pa.py_buffer(b"left by a crash"))
    mine = archiver(shelf.open(), objects, sizes)
    assert mine.swept == 2
    assert stray(objects) == {old, part}
    on_its_way = f"{segment_folder(101)}/{mine.epoch}-abcd.parquet"
    objects.put_new(on_its_way, pa.py_buffer(b"of the archiver that is at it"))
    assert mine.sweep(everywhere=True) == 2
    assert stray(objects) == {on_its_way}
    check(shelf, objects, rows)


def test_what_others_put_there_is_left_alone(shelf: Shelf, objects: MemoryObjects) -> None:
    objects.put_new(f"{SEGMENTS}/README.txt", pa.py_buffer(b"hands off"))
    archiver(shelf.open(), objects).run(31)
    assert archiver(shelf.open(), objects).sweep(everywhere=True) == 0
    assert stray(objects) == {f"{SEGMENTS}/README.txt"}


def test_a_log_has_one_archive_and_an_archive_one_log(shelf: Shelf, objects: MemoryObjects) -> None:
    archiver(shelf.open(), objects).run(31)
    with pytest.raises(InvalidInput, match="is at memory:test-"):
        archiver(shelf.open(), MemoryObjects("elsewhere"))
    other = Shelf()
    fill(other)
    with pytest.raises(NotAnArchive, match="of another log"):
        archiver(other.open(), objects)
    assert ARCHIVE_NOTE not in other.notes
    check(shelf, objects)


def test_a_store_that_ignores_conditions_is_refused(shelf: Shelf) -> None:
    class Careless(FaultyObjects):
        def put_new(self, name: str, data: pa.Buffer) -> str:
            self._objects.delete([name])
            return super().put_new(name, data)

    careless = Careless(MemoryObjects("careless"), Fault(-1, "before"))
    with pytest.raises(NotAnArchive, match="If-None-Match"):
        archiver(shelf.open(), careless)
    assert ARCHIVE_NOTE not in shelf.notes


def test_rows_that_are_lost_stop_the_archiver(shelf: Shelf, objects: MemoryObjects) -> None:
    del shelf.frames[2], shelf.lasts[2]
    with pytest.raises(Corrupt, match="rows 11 to 15 should be there"):
        archiver(shelf.open(), objects).run(31)
    assert Archive(objects).look().next == 11


@pytest.mark.parametrize("first", [2, 5, 6, 17, 18, 25, 30, 31])
def test_trimming_reaches_into_the_archive(
    shelf: Shelf, objects: MemoryObjects, first: int
) -> None:
    archiver(shelf.open(), objects).run(27)
    log = TieredLog(shelf.open())
    assert log.trim(first) == first
    assert read_all(log) == ROWS[first - 1 :]
    with pytest.raises(Trimmed):
        log.read(first - 1, rows_max=1, bytes_max=100)
    archive = Archive(objects)
    manifest = archive.look()
    assert all(segment.next > first for segment in archive.segments(manifest))
    assert (manifest.first, manifest.next) == (first, max(first, 27))
    assert stray(objects) == set()
    archiver(shelf.open(), objects).run(31)
    assert read_all(log) == ROWS[first - 1 :]
    assert stray(objects) == set()


def test_a_trim_that_did_not_reach_the_archive_is_made_up_for(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    archiver(shelf.open(), objects).run(20)
    shelf.open().trim(12)
    assert Archive(objects).look().first == 1
    archiver(shelf.open(), objects).run(31)
    manifest = Archive(objects).look()
    assert manifest.first == 12
    assert manifest.covered == 9
    assert stray(objects) == set()


def test_rows_that_are_trimmed_while_they_are_archived_leave_no_object(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    mine, log = archiver(shelf.open(), objects), TieredLog(shelf.open())

    def store(start: int, end: int) -> Iterator[list[Segment]]:
        for segments in mine.store(start, end):
            log.trim(10)
            yield segments

    assert mine.run(27, store=store).first == 10
    assert stray(objects) == set()
    assert read_all(log, 10) == ROWS[9:]


def test_a_reader_follows_segments_that_go_while_it_reads(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    archiver(shelf.open(), objects).run(31)
    reader, other = TieredLog(shelf.open()), TieredLog(shelf.open())
    assert reader.read(1, rows_max=2, bytes_max=10**6)[0].rows() == [b"1", b"2"]
    other.trim(14)
    with pytest.raises(Trimmed):
        reader.read(3, rows_max=2, bytes_max=10**6)
    assert read_all(reader, 14) == ROWS[13:]


def test_a_lost_or_damaged_segment_is_said_by_its_rows(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    archiver(shelf.open(), objects).run(31)
    names = list(objects.names(SEGMENTS))
    data = bytearray(objects.get(names[2]).data.to_pybytes())
    objects.delete([names[2], names[4]])
    data[10] ^= 255
    objects.put_new(names[2], pa.py_buffer(bytes(data)))
    log = TieredLog(shelf.open())
    found = log.read(1, rows_max=100, bytes_max=10**6)
    assert found[-1].next_seq == 9
    with pytest.raises(Corrupt, match=r"rows 9 to 11 are damaged.*segments/"):
        log.read(9, rows_max=1, bytes_max=100)
    with pytest.raises(Corrupt, match=r"rows 18 to 20 should be there.*is gone from the archive"):
        log.read(18, rows_max=1, bytes_max=100)
    assert read_all(log, 21) == ROWS[20:]


def test_small_segments_become_one(shelf: Shelf, objects: MemoryObjects) -> None:
    sizes = Sizes(segment_rows=100, group_rows=7, compacted_segments=4)
    log = shelf.open()
    reader = TieredLog(shelf.open())
    mine = archiver(log, objects, sizes)
    counts = []
    for end in range(3, 32, 2):
        mine.run(end)
        counts.append(Archive(objects).look().count)
        assert read_all(reader, 1) == ROWS
    assert counts == [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3]
    assert stray(objects) == set()
    check(shelf, objects)


@pytest.mark.slow
def test_a_crash_while_segments_become_one_costs_nothing() -> None:
    sizes = Sizes(segment_rows=100, compacted_segments=3)
    seen = set()
    for when in WHENS:
        for at in range(100):
            shelf = Shelf()
            fill(shelf)
            objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
            mine = archiver(shelf.open(), objects, sizes)
            mine.run(9)
            mine.run(17)
            fault = Fault(at, when)
            mine._archive = Archive(FaultyObjects(objects, fault))
            with suppress(Crash):
                mine.run(31)
            check(shelf, objects)
            archiver(shelf.open(), objects, sizes).run(31)
            assert stray(objects) == set(), fault
            assert Archive(objects).look().count == 1
            check(shelf, objects)
            if at >= len(fault.calls):
                break
            seen.add(fault.calls[at].split()[0])
    assert seen >= {"put", "get", "replace", "delete"}


def test_an_older_copy_of_the_log_is_not_archived(shelf: Shelf, objects: MemoryObjects) -> None:
    archiver(shelf.open(), objects).run(31)
    older = Shelf()
    fill(older, ROWS[:20])
    older.notes.update(shelf.notes)
    with pytest.raises(Corrupt, match="an older copy"):
        archiver(older.open(), objects).run(21)
    assert len(older.frames) == 4


def test_the_store_of_a_log_may_be_opened_without_its_archive(shelf: Shelf) -> None:
    assert isinstance(shelf.open(), MemoryLog)
    assert read_all(shelf.open()) == ROWS
