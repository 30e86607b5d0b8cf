"""The doctor of an archive: what is well is said to be, and every kind of damage is found."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tests.log.archive.test_archiver import ROWS, SMALL, archiver, fill, stray
from tests.log.contract.writing import append
from tests.services.mariadb import MariaDB
from tests.services.seaweedfs import SeaweedFS
from tidemill.batch import DEFAULT
from tidemill.files.report import Severity
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.checkup import verify
from tidemill.log.archive.manifest import NAME, PAGES, SEGMENTS, segment_folder
from tidemill.log.archive.memory import MemoryObjects
from tidemill.log.archive.notes import LOG_NOTE
from tidemill.log.archive.objects import ObjectStore
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.report import ArchiveReport
from tidemill.log.memory import Shelf

Change = Callable[[ObjectStore], None]


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects.of(f"test-{secrets.token_hex(8)}")


@pytest.fixture
def shelf(objects: MemoryObjects) -> Shelf:
    """Rows 1 to 30, of which 1 to 26 are archived and the frame of 26 to 30 is hot."""
    shelf = Shelf()
    fill(shelf)
    archiver(shelf.open(), objects).run(27)
    return shelf


def found(report: ArchiveReport) -> list[tuple[str, str]]:
    return [(one.severity.value, one.code) for one in report.findings]


def rewrite(objects: ObjectStore, name: str, change: Callable[[bytes], bytes]) -> None:
    data = objects.get(name).data.to_pybytes()
    objects.delete([name])
    objects.put_new(name, pa.py_buffer(change(data)))


def flipped(at: int) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        damaged = bytearray(data)
        damaged[at] ^= 1
        return bytes(damaged)

    return change


@pytest.mark.parametrize("deep", [False, True])
def test_what_is_well_is_said_to_be(shelf: Shelf, objects: MemoryObjects, deep: bool) -> None:
    steps: list[tm.doctor.Progress] = []
    report = verify(Archive(objects), log=shelf.open(), deep=deep, on_progress=steps.append)
    assert found(report) == []
    assert (report.rows, report.segments, report.pages, report.hot) == (26, 7, 2, 1)
    assert (report.first, report.next, report.orphans) == (1, 27, 0)
    assert len(steps) == 7
    assert steps[-1] == (26, report.bytes, report.bytes)
    assert str(report).startswith(f"{report.place}: rows 1 to 26 of a log; ")
    assert str(report).endswith("All is well.")
    assert ("every byte" in str(report)) == deep
    assert report.to_json()["healthy"]
    alone = verify(Archive(objects), deep=deep)
    assert (found(alone), alone.rows, alone.hot) == ([], 26, 0)


def test_an_archive_of_nothing_has_no_rows() -> None:
    with tm.Log("memory:nothing-to-archive") as log:
        log.archive("memory:nothing-archived")
        assert ": no rows of a log; " in str(log.verify_archive())


def segment_of(objects: ObjectStore, seq: int) -> str:
    archive = Archive(objects)
    return next(
        segment.file
        for segment in archive.segments(archive.look())
        if segment.first <= seq < segment.next
    )


@pytest.mark.parametrize(
    ("change", "says", "needs_deep"),
    [
        (lambda objects: objects.delete([segment_of(objects, 6)]), "it is gone", False),
        (
            lambda objects: rewrite(objects, segment_of(objects, 6), lambda data: data[:-1]),
            "shorter than its",
            False,
        ),
        (
            lambda objects: rewrite(objects, segment_of(objects, 6), lambda data: data + b"x"),
            "longer than its",
            False,
        ),
        (
            lambda objects: rewrite(objects, segment_of(objects, 6), flipped(-20)),
            "checksum of its footer",
            False,
        ),
        (
            lambda objects: rewrite(objects, segment_of(objects, 6), flipped(20)),
            "its checksum does not match",
            True,
        ),
    ],
    ids=["gone", "short", "long", "footer", "rows"],
)
def test_a_segment_that_is_not_what_it_was_is_found(
    shelf: Shelf, objects: MemoryObjects, change: Change, says: str, needs_deep: bool
) -> None:
    change(objects)
    if needs_deep:
        assert found(verify(Archive(objects), log=shelf.open())) == []
    report = verify(Archive(objects), log=shelf.open(), deep=needs_deep)
    assert found(report) == [("damage", "segment")]
    (finding,) = report.findings
    assert says in finding.what
    assert "rows 5 to 8" in finding.what
    assert finding.items == 4
    assert report.rows == 22
    assert not report.is_healthy
    assert "Something is damaged" in str(report)


def test_a_page_that_is_lost_is_found_and_nothing_of_it_is_swept(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    page = next(iter(objects.names(PAGES)))
    before = list(objects.names(SEGMENTS))
    rewrite(objects, page, flipped(30))
    assert found(verify(Archive(objects), repair=True)) == [("damage", "page")]
    objects.delete([page])
    report = verify(Archive(objects), log=shelf.open(), repair=True)
    assert found(report) == [("damage", "page")]
    assert report.findings[0].items == 8
    assert (report.rows, report.done) == (18, ())
    assert list(objects.names(SEGMENTS)) == before


def test_a_page_that_was_lost_since_it_was_read_is_found(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    archive = Archive(objects)
    manifest = archive.look()
    assert list(archive.segments(manifest))
    objects.delete([manifest.pages[0].file])
    assert ("damage", "page") in found(verify(archive, log=shelf.open()))


def test_a_manifest_that_cannot_be_read_is_found(shelf: Shelf, objects: MemoryObjects) -> None:
    rewrite(objects, NAME, flipped(40))
    report = verify(Archive(objects), log=shelf.open(), repair=True)
    assert found(report) == [("damage", "manifest")]
    assert report.log is None
    objects.delete([NAME])
    with pytest.raises(tm.NotAnArchive):
        verify(Archive(objects))


def test_what_nothing_names_is_found_and_swept_if_told_to(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    archiver(shelf.open(), objects)  # It has taken over, with epoch 2.
    old = f"{segment_folder(3)}/1-abcd.parquet"
    now = f"{segment_folder(27)}/2-abcd.parquet"
    other = f"{SEGMENTS}/README.txt"
    for name in (old, now, other):
        objects.put_new(name, pa.py_buffer(b"something"))
    report = verify(Archive(objects), log=shelf.open())
    assert found(report) == [("note", "orphan"), ("note", "under-way"), ("note", "foreign")]
    assert (report.orphans, report.is_healthy, report.done) == (1, True, ())
    assert stray(objects) == {old, now, other}
    report = verify(Archive(objects), repair=True)
    assert report.done == ("removed 1 object that nothing names",)
    assert stray(objects) == {now, other}
    assert found(verify(Archive(objects), log=shelf.open())) == [
        ("note", "under-way"),
        ("note", "foreign"),
    ]


def test_rows_in_neither_place_are_found(shelf: Shelf, objects: MemoryObjects) -> None:
    with shelf.open() as log:
        append(log.claim(), [b"31", b"32"])
    del shelf.frames[0], shelf.lasts[0]
    report = verify(Archive(objects), log=shelf.open())
    assert found(report) == [("damage", "missing-rows")]
    assert "rows 27 to 30 are neither" in report.findings[0].what
    assert report.findings[0].items == 4
    del shelf.frames[0], shelf.lasts[0]
    assert "rows 27 to 32" in verify(Archive(objects), log=shelf.open()).findings[0].what


def test_rows_that_differ_in_both_places_are_found(shelf: Shelf, objects: MemoryObjects) -> None:
    other = Shelf()
    fill(other, [*ROWS[:25], b"OTHER", *ROWS[26:]])
    shelf.frames[0] = other.frames[5]
    assert found(verify(Archive(objects), log=shelf.open())) == []
    report = verify(Archive(objects), log=shelf.open(), deep=True)
    assert found(report) == [("damage", "different-rows")]
    assert "rows 26 to 26 differ" in report.findings[0].what


def test_an_archive_that_does_not_fit_its_log_is_found(
    shelf: Shelf, objects: MemoryObjects
) -> None:
    other = Shelf()
    fill(other, ROWS[:20])
    other.notes[LOG_NOTE] = "another"
    assert found(verify(Archive(objects), log=other.open())) == [("damage", "owner")]
    other.notes.update(shelf.notes)
    assert found(verify(Archive(objects), log=other.open())) == [("damage", "older-copy")]
    shelf.open().trim(12)
    assert found(verify(Archive(objects), log=shelf.open())) == [("note", "trimmed")]


def test_a_schema_version_that_the_log_lacks_is_found(objects: MemoryObjects) -> None:
    shelf, other = Shelf(), Shelf()
    wide = pa.schema([*DEFAULT, ("city", pa.utf8())])
    append(shelf.open(wide).claim(), [{"value": b"c", "city": "Ghent"}], schema=wide)
    archiver(shelf.open(), objects).run(2)
    fill(other, ROWS[:5])
    other.notes.update(shelf.notes)
    report = verify(Archive(objects), log=other.open())
    assert found(report) == [("warning", "schema")]
    assert report.worst is Severity.WARNING
    assert "see the warnings" in str(report)


def test_a_schema_version_that_another_user_of_the_log_added_since_is_known(
    mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    address = mariadb.url(database, "log")
    with tm.Log(address) as early:
        with tm.Log(address, schema=pa.schema([*DEFAULT, ("n", pa.int64())])) as log:
            log.publisher().send([{"value": b"a", "n": 1}])
            log.archive(tmp_path / "archive")
        assert early.verify_archive().findings == ()


def test_what_is_given_up_meanwhile_is_no_damage(shelf: Shelf, objects: MemoryObjects) -> None:
    """Rows are trimmed when the first segment was looked at, and a page is written anew."""
    shelf.open().trim(15)

    def trim(_: object) -> None:
        if Archive(objects).look().first == 1:
            archiver(shelf.open(), objects).run(27)

    report = verify(Archive(objects), log=shelf.open(), deep=True, on_progress=trim)
    assert report.worst in (None, Severity.NOTE)
    assert Archive(objects).look().first == 15


@pytest.mark.parametrize("end", [29, 31])
def test_what_is_archived_meanwhile_is_not_missed(
    shelf: Shelf, objects: MemoryObjects, end: int
) -> None:
    def archive(_: object) -> None:
        if Archive(objects).look().next == 27:
            archiver(shelf.open(), objects).run(end)

    report = verify(Archive(objects), log=shelf.open(), on_progress=archive)
    assert report.worst in (None, Severity.NOTE)
    assert Archive(objects).look().next == end


@pytest.mark.slow
def test_a_bucket_is_verified_and_swept(
    seaweedfs: SeaweedFS, prefix: str, mariadb: MariaDB, database: str, shell: Shell
) -> None:
    url, place = seaweedfs.url(prefix), mariadb.url(database, "orders")
    with tm.Log(place, parallelism=2) as log, log.publisher() as out:
        for start in range(0, 30, 5):
            out.send(ROWS[start : start + 5])
        archive = Archive(open_objects(url))
        Archiver(log._store.hot, archive, SMALL).run(27)
        archive.objects.put_new(f"{segment_folder(3)}/0-abcd.parquet", pa.py_buffer(b"orphan"))
        report = log.verify_archive(deep=True, repair=True)
        assert (found(report), report.rows) == ([("note", "orphan")], 26)
        assert stray(archive.objects) == set()
    told = shell.good(f"tidemill doctor '{place}' --json").json()
    assert (told["rows"], told["archive"]["rows"]) == (30, 26)
    with tm.Log(url) as alone:
        assert alone.verify_archive().segments == 7
    archive.objects.delete([segment_of(archive.objects, 6)])
    done = shell.run(f"tidemill doctor '{url}'")
    assert done.status == 9
    assert "it is gone; it should hold rows 5 to 8" in done.out


@pytest.mark.slow
def test_the_command_looks_at_an_archive_alone_and_with_its_log(shell: Shell) -> None:
    with tm.Log(shell.folder / "orders") as log, log.publisher() as out:
        out.send(ROWS)
        log.archive(shell.folder / "cold")
    orphan = shell.folder / "cold" / "segments" / f"{3:020}-0-abcd.parquet"
    orphan.write_bytes(b"left by a crash")
    both = shell.good("tidemill doctor orders/ --json").json()
    assert (both["healthy"], both["archive"]["rows"], both["archive"]["orphans"]) == (True, 30, 1)
    said = shell.good("tidemill doctor cold/ --deep --repair").out
    assert "every byte of 1 segment verified, 30 rows" in said
    assert "done: removed 1 object that nothing names" in said
    assert not orphan.exists()
    shell.refused("tidemill doctor cold/ --set-aside", 3, "invalid-input")
    (segment,) = (shell.folder / "cold" / "segments").rglob("*.parquet")
    segment.write_bytes(flipped(-20)(segment.read_bytes()))
    for place in ("cold/", "orders/"):
        assert shell.run(f"tidemill doctor {place}").status == 9
    manifest = shell.folder / "cold" / "manifest.json"
    manifest.write_bytes(b"{}")
    assert shell.run("tidemill doctor cold/").status == 9
    manifest.unlink()
    gone = shell.run("tidemill doctor orders/ --json")
    assert gone.status == 4
    assert gone.json()["healthy"]
    assert "holds no archive" in gone.error()["message"]


def test_a_log_without_an_archive_says_so(tmp_path: Path) -> None:
    with tm.Log(tmp_path / "log") as log, pytest.raises(tm.NotAnArchive, match="has no archive"):
        log.verify_archive()
