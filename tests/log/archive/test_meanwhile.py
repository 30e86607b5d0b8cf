"""Rows that become part of other files, or are trimmed, between any two steps of who reads."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.files.fake_clock import FakeClock
from tests.log.archive.faulty_objects import Fault, FaultyObjects
from tests.log.archive.shared_archive import SharedArchive
from tests.log.contract.writing import append
from tidemill.errors import Fenced, MissingRows, Trimmed
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.checkup import verify
from tidemill.log.archive.compacting import Compaction, rows_of, small_groups
from tidemill.log.archive.dropping import drop_below
from tidemill.log.archive.folder import FolderObjects
from tidemill.log.archive.manifest import PAGES, SEGMENTS
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.objects import Present, Stored
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.archived_log import ArchivedLog
from tidemill.log.memory import MemoryLog, Shelf
from tidemill.log.tiered import TieredLog

SMALL = Sizes(segment_rows=3, manifest_segments=4)
MERGED = Sizes(compacted_segments=2)


class Meanwhile(FaultyObjects):
    """Lets others do something right before it is asked for its object number `at`, from 0 on."""

    def __init__(self, objects: MemoryObjects, at: int, act: Callable[[], object]) -> None:
        super().__init__(objects, Fault(-1, "before"))
        self._at = at
        self._act = act
        self.is_over = False

    def get(self, name: str) -> Stored:
        self._count()
        return super().get(name)

    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        self._count()
        return super().get_range(name, start, end)

    def _count(self) -> None:
        self._at -= 1
        if self._at < 0 and not self.is_over:
            self.is_over = True
            self._act()


def archived(rows: int = 30, end: int | None = None) -> tuple[Shelf, MemoryObjects]:
    """Rows that an archive holds in small segments, some of them on a page; a row each second. With
    `end` it holds those before, and the log has the others.
    """
    clock = FakeClock()
    shelf = Shelf(clock=clock)
    writer = shelf.open().claim()
    for number in range(1, rows + 1):
        clock.advance(1)
        append(writer, [b"%d" % number])
    objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
    if end != 0:
        Archiver(shelf.open(), Archive(objects), SMALL).run(end or rows + 1)
    return shelf, objects


def compact(shelf: Shelf, objects: MemoryObjects) -> None:
    Archiver(shelf.open(), Archive(objects), MERGED).run(shelf.open().ends().next)


def trim(shelf: Shelf, _: MemoryObjects) -> None:
    TieredLog(shelf.open()).trim(14)


def time_us(seq: int) -> int:
    """When a row was written."""
    return (1_000 + seq) * 1_000_000


READS: dict[str, Callable[[TieredLog, Archive, int], object]] = {
    "rows": lambda log, _, seq: log.read(seq, rows_max=1, bytes_max=1)[0].rows(),
    "the row of a time": lambda log, _, seq: log.seq_at(time_us(seq)),
    "segments": lambda log, _, seq: bool(len(log.layout(seq, seq + 8).firsts)),
    "sizes": lambda _, archive, seq: 1 <= archive.newest_within(1_500, seq + 9) <= seq + 9,
}


@pytest.mark.parametrize("seq", [4, 16, 28])
@pytest.mark.parametrize("change", [compact, trim])
@pytest.mark.parametrize("what", READS)
def test_who_reads_looks_again_or_says_that_it_was_trimmed(
    what: str, change: Callable[[Shelf, MemoryObjects], None], seq: int
) -> None:
    read = READS[what]
    shelf, objects = archived()
    expected = read(TieredLog(shelf.open()), Archive(objects), seq)
    at = 0
    while True:
        shelf, objects = archived()
        meanwhile = Meanwhile(objects, at, partial(change, shelf, objects))
        log = TieredLog(shelf.open())
        log._archive = Archive(meanwhile)
        try:
            found = read(log, log._archive, seq)
        except Trimmed:
            assert change is trim
            assert seq < 14
        else:
            assert found == expected or (change is trim and seq < 14)
        if not meanwhile.is_over:
            assert at > 0
            return
        at += 1


@pytest.mark.parametrize("end", [0, 1, 14])
def test_a_time_whose_rows_go_to_the_archive_while_they_are_looked_for_is_found(end: int) -> None:
    shelf, objects = archived(end=end)

    class Archived(MemoryLog):
        """Somebody archives right before it looks for a time, and releases what it would find."""

        def seq_at(self, time_us: int) -> int:
            Archiver(shelf.open(), Archive(objects), SMALL).run(31)
            return super().seq_at(time_us)

    log = TieredLog(Archived(shelf))
    assert log.seq_at(time_us(20)) == 20
    assert log.seq_at(time_us(31)) == 31


def test_a_time_whose_rows_come_to_an_archive_by_itself_meanwhile_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shelf, objects = archived(end=14)
    look_for = Archive.seq_at

    def seq_at(archive: Archive, time_us: int) -> int | None:
        found = look_for(archive, time_us)
        Archiver(shelf.open(), Archive(objects), SMALL).run(31)
        archive.look()  # as another thread of this process may
        return found

    monkeypatch.setattr(Archive, "seq_at", seq_at)
    assert ArchivedLog(objects.url).seq_at(time_us(20)) == 20
    assert ArchivedLog(objects.url).seq_at(time_us(31)) == 31


def test_a_segment_that_is_gone_for_good_is_said_by_its_rows_when_a_time_is_looked_for() -> None:
    _, objects = archived()
    archive = Archive(objects)
    segment = archive.find(29)
    assert segment.file.startswith(SEGMENTS)
    objects.delete([segment.file])
    with pytest.raises(MissingRows, match=r"rows 28 to 30 .* is gone from the archive"):
        Archive(objects).seq_at(time_us(29))


def rewrite_pages(shelf: Shelf, objects: MemoryObjects) -> None:
    """What compaction on Spark does: also segments on pages become fewer."""
    archive = Archive(objects)
    mine = Archiver(shelf.open(), archive, SMALL)
    groups = [one for part in archive.listed() for one in small_groups(part, MERGED, least=2)]
    mine.replace([Compaction(group, mine._writer.put(rows_of(archive, group))) for group in groups])


def drop(archive: Archive, _: Path) -> None:
    assert drop_below(archive, 17).first == 17
    assert Archive(archive.objects).read(
        17, rows_max=1, bytes_max=1, versions=archive.known.versions
    )[0].rows() == [b"17"]


def look(archive: Archive, _: Path) -> None:
    assert verify(archive, deep=True).worst is None


def restore(archive: Archive, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tidemill.log.restoring.open_objects", lambda _: archive.objects)
        try:
            done = tm.restore("the archive", folder / "copy")
        except Trimmed:
            assert archive.look().first == 14
            return
    with tm.Log(folder / "copy") as copy:
        rows = [b"%d" % number for number in range(done.first, 31)]
        assert copy.read(done.first, rows_max=100).rows() == rows


@pytest.mark.parametrize("change", [compact, rewrite_pages, trim])
@pytest.mark.parametrize("work", [drop, look, pytest.param(restore, marks=pytest.mark.slow)])
def test_whoever_works_on_an_archive_finds_pages_that_others_write_anew(
    work: Callable[[Archive, Path], None],
    change: Callable[[Shelf, MemoryObjects], None],
    tmp_path: Path,
) -> None:
    at = 0
    while True:
        shelf, objects = archived()
        meanwhile = Meanwhile(objects, at, partial(change, shelf, objects))
        (folder := tmp_path / str(at)).mkdir()
        work(Archive(meanwhile), folder)
        if not meanwhile.is_over:
            assert at > 1
            return
        at += 1


def test_an_archiver_whose_half_written_object_is_swept_was_overtaken(tmp_path: Path) -> None:
    class Late(LocalFileSystem):
        """Lets another archiver do all of the work before it gives a file its name."""

        is_over = False

        def link(self, source: Path, target: Path) -> None:
            if SEGMENTS in target.parts and not self.is_over:
                self.is_over = True
                archive(FolderObjects(tmp_path))
            super().link(source, target)

    def archive(objects: FolderObjects) -> None:
        Archiver(shelf.open(), Archive(objects), SMALL).run(31)

    shelf = Shelf(clock=FakeClock())
    for number in range(1, 31):
        append(shelf.open().claim(), [b"%d" % number])
    with pytest.raises(Fenced, match="another archiver took over"):
        archive(FolderObjects(tmp_path, Late()))
    assert verify(Archive(FolderObjects(tmp_path)), log=shelf.open(), deep=True).worst is None


def test_a_look_of_another_thread_that_took_longer_hides_nothing() -> None:
    shelf = Shelf(clock=FakeClock())
    writer = shelf.open().claim()
    for number in range(1, 31):
        append(writer, [b"%d" % number])
    objects = MemoryObjects.of(f"test-{secrets.token_hex(8)}")
    Archiver(shelf.open(), Archive(objects), SMALL).run(14)
    log = TieredLog(shelf.open())
    log._archive = SharedArchive(objects)
    Archiver(shelf.open(), Archive(objects), SMALL).run(31)
    assert log.read(20, rows_max=1, bytes_max=1)[0].rows() == [b"20"]


def test_pages_that_are_lost_are_said_by_their_rows_when_the_archive_is_trimmed() -> None:
    _, objects = archived()
    (page, *_) = objects.names(PAGES)
    objects.delete([page])
    with pytest.raises(MissingRows, match=r"rows 1 to 12 .* is gone from the archive"):
        drop_below(Archive(objects), 2)


def test_a_page_whose_put_was_not_answered_is_taken_for_put() -> None:
    class Unanswered(FaultyObjects):
        """Finds there what a try of the same call has put."""

        def put_new(self, name: str, data: pa.Buffer) -> str:
            super().put_new(name, data)
            raise Present(name)

    _, objects = archived()
    drop_below(Archive(Unanswered(objects, Fault(-1, "before"))), 2)
    assert Archive(objects).look().first == 2
    assert verify(Archive(objects), deep=True).worst is None
