"""Restoring: the same rows, numbers and times, whatever happens on the way; nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import wait
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tests.log.contract.writing import frames_of, read_all
from tests.services.mariadb import MariaDB
from tests.services.seaweedfs import SeaweedFS
from tidemill.batch import DEFAULT
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.contract import LogWriter, Reservation
from tidemill.log.memory import Shelf
from tidemill.log.restoring import _Lanes

SMALL = Sizes(segment_rows=7, group_rows=4, manifest_segments=2)
ROWS = [b"%04d" % number for number in range(1, 61)]


@pytest.fixture(params=["files", pytest.param("mariadb", marks=pytest.mark.slow)])
def copy(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a log that is not there yet."""
    if request.param == "files":
        return str(tmp_path / "copy")
    server: MariaDB = request.getfixturevalue("mariadb")
    return server.url(request.getfixturevalue("database"), "copy")


def archive(log: tm.Log, url: str | Path, end: int | None = None) -> None:
    Archiver(log._store.hot, Archive(open_objects(url)), SMALL).run(end or log.ends().next)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The archive of rows 1 to 60, sent by threes; the log is beside it."""
    with tm.Log(tmp_path / "log", sync="none") as log, log.publisher() as out:
        for start in range(0, 60, 3):
            out.send(ROWS[start : start + 3])
        archive(log, tmp_path / "archive")
    return tmp_path / "archive"


def same(one: tm.Log, other: tm.Log) -> None:
    """Both have the same rows, numbers and times, and find them by time alike."""
    assert one.ends() == other.ends()
    mine, theirs = one.read(rows_max=1_000), other.read(rows_max=1_000)
    assert mine.first_seq == theirs.first_seq
    assert mine.rows() == theirs.rows()
    assert mine.times.equals(theirs.times)
    for at in (0, 10, len(mine) - 1):
        moment = mine.slice(at, 1).first
        assert moment is not None
        assert one.read(moment.time).first_seq == other.read(moment.time).first_seq


def test_rows_come_back_with_their_numbers_and_times(source: Path, copy: str) -> None:
    steps: list[tuple[int, int]] = []
    done = tm.restore(source, copy, on_progress=lambda one, rows: steps.append((one.next, rows)))
    assert (done.first, done.next, done.rows, done.segments) == (1, 61, 60, 9)
    assert done.bytes == Archive(open_objects(source)).look().bytes
    assert steps[0] == (8, 60)
    assert steps[-1] == (61, 60)
    with tm.Log(copy) as restored, tm.Log(source.parent / "log") as log:
        same(restored, log)
        assert restored.consumers() == {}
        with restored.publisher() as out:
            assert out.send(b"and on").first == 61
        last, before = restored.read(61).first, restored.read(60, rows_max=1).first
        assert last is not None
        assert before is not None
        assert last.time >= before.time
    assert tm.restore(source, copy) == (62, 62, 0, 0)


def test_a_log_begins_where_its_archive_does(source: Path, copy: str) -> None:
    with tm.Log(source.parent / "log") as log:
        log.trim(25)
    assert tm.restore(source, copy).first == 25
    with tm.Log(copy) as restored, tm.Log(source.parent / "log") as log:
        assert restored.ends() == (25, 61)
        same(restored, log)
        with restored.receiver("billing", follow=False) as receiver:
            assert next(iter(receiver)).first_seq == 25


def test_what_was_interrupted_goes_on_and_what_came_since_comes_too(
    source: Path, copy: str
) -> None:
    def stop(done: tm.Restored, _: int) -> None:
        if done.next > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tm.restore(source, copy, on_progress=stop)
    with tm.Log(copy) as half:
        assert half.ends() == (1, 22)
    done = tm.restore(source, copy)
    assert (done.first, done.next) == (22, 61)
    with tm.Log(source.parent / "log") as log, log.publisher() as out:
        out.send([b"more", b"and more"])
        archive(log, source)
        assert tm.restore(source, copy).rows == 2
        with tm.Log(copy) as restored:
            same(restored, log)


def test_a_log_that_has_other_rows_is_refused(source: Path, copy: str, tmp_path: Path) -> None:
    with tm.Log(copy) as other, other.publisher() as out:
        out.send(b"mine")
    with pytest.raises(tm.InvalidInput, match="rows of its own"):
        tm.restore(source, copy)
    with tm.Log(copy) as other:
        assert (other.read().rows(), other._store.notes()) == ([b"mine"], {})


def test_rows_that_others_sent_meanwhile_are_seen(source: Path, copy: str) -> None:
    def stop(done: tm.Restored, _: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tm.restore(source, copy, on_progress=stop)
    with tm.Log(copy) as half, half.publisher() as out:
        assert out.send(ROWS[7]).first == 8
    with pytest.raises(tm.InvalidInput, match="somebody has sent rows since"):
        tm.restore(source, copy)


def test_a_log_that_others_sent_more_rows_to_than_the_archive_has_is_refused_as_well(
    source: Path, copy: str
) -> None:
    tm.restore(source, copy)
    with tm.Log(copy) as other, other.publisher() as out:
        out.send([b"mine"] * 5)
    with tm.Log(source.parent / "log") as log, log.publisher() as out:
        out.send([b"more", b"and more"])
        archive(log, source)
    with pytest.raises(tm.InvalidInput, match=r"row 62 of .* somebody has sent rows since"):
        tm.restore(source, copy)


def test_what_cannot_be_is_said(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with pytest.raises(tm.InvalidInput, match="not to memory"):
        tm.restore(source, "memory:copy")
    with pytest.raises(tm.InvalidInput, match="an archive itself"):
        tm.restore(source, source)
    with pytest.raises(tm.InvalidInput, match="an archive itself"):
        tm.restore(source, "s3://bucket/orders")
    with pytest.raises(tm.NotAnArchive):
        tm.restore(tmp_path / "nowhere", copy)
    assert not copy.exists()
    with tm.Log(copy) as log:
        with log.publisher(), pytest.raises(tm.Locked, match="close that publisher"):
            tm.restore(source, copy)
        log.receiver("early").close()
    with tm.Log(source.parent / "log") as log:
        log.trim(25)
    with pytest.raises(tm.InvalidInput, match="has consumers"):
        tm.restore(source, copy)
    with tm.Log(copy) as log:
        log.remove_consumer("early")
    assert tm.restore(source, copy).rows == 36
    with tm.Log("memory:restoring") as other:
        other.publisher().send(ROWS)
        other.archive(tmp_path / "another")
    with pytest.raises(tm.InvalidInput, match="of another log"):
        tm.restore(tmp_path / "another", copy)


def test_a_log_of_another_schema_is_refused_and_one_that_can_grow_grows(
    source: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    tm.Log(copy, schema=pa.schema([("n", pa.int64())])).close()
    with pytest.raises(tm.SchemaMismatch):
        tm.restore(source, copy)
    with tm.Log(copy) as log:
        assert log.schema.names == ["n"]
    wide = pa.schema([*DEFAULT, ("city", pa.utf8())])
    with tm.Log(source.parent / "log", schema=wide) as log, log.publisher() as out:
        out.send([{"value": b"61", "city": "Ghent"}])
        archive(log, source)
    other = tmp_path / "other"
    tm.Log(other).close()
    assert tm.restore(source, other).rows == 61
    with tm.Log(other) as restored, tm.Log(source.parent / "log") as log:
        same(restored, log)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("change", [Path.unlink, flip])
def test_damage_ends_it_and_rows_in_front_are_there(
    source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    third = sorted((source / "segments").rglob("*.parquet"))[2]
    good = third.read_bytes()
    change(third)
    with pytest.raises(tm.Corrupt, match="rows 15 to 21 "):
        tm.restore(source, tmp_path / "copy")
    with tm.Log(tmp_path / "copy") as half:
        assert half.ends() == (1, 15)
    third.write_bytes(good)
    assert tm.restore(source, tmp_path / "copy").first == 15
    with tm.Log(tmp_path / "copy") as restored, tm.Log(source.parent / "log") as log:
        same(restored, log)


def test_segments_that_become_one_meanwhile_are_no_loss(tmp_path: Path) -> None:
    """What was listed is gone when it is to be read: a larger one has its rows."""
    many = Sizes(segment_rows=1_000, compacted_segments=5)
    with tm.Log(tmp_path / "log", sync="none") as log, log.publisher() as out:
        opened = Archive(open_objects(tmp_path / "archive"))
        archiver = Archiver(log._store.hot, opened, many)
        for start in range(0, 20, 5):
            archiver.run(out.send(ROWS[start : start + 5]).last + 1)

        def compact(done: tm.Restored, _: int) -> None:
            if done.next == 6:
                archiver.run(out.send(ROWS[20:25]).last + 1)

        assert opened.look().count == 4
        assert tm.restore(tmp_path / "archive", tmp_path / "copy", on_progress=compact).next == 26
        assert opened.look().count == 1
        with tm.Log(tmp_path / "copy") as restored:
            same(restored, log)


def _append_all(writer: LogWriter, rows: list[bytes], *, settled: bool) -> None:
    with _Lanes(writer, 1) as lanes:
        for number, row in enumerate(rows, 1):
            lanes.append(1, frames_of([row]))
            if settled and number % 3 == 0:
                wait(lanes._under_way.values())


@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("bad", [1, 2, 5, 9, 10])
def test_of_appends_side_by_side_the_one_that_failed_is_told_of(bad: int, settled: bool) -> None:
    """Those with higher numbers fail because of it, which says nothing; and no later row takes its
    number, though it was given back before anybody looked.
    """
    shelf = Shelf(lanes=3)

    def hurdle(_: int, numbers: Reservation) -> None:
        if numbers.first == bad:
            shelf.hurdle = None  # Once: from then on the number could be given again.
            raise tm.Unavailable("the server went away")

    shelf.hurdle = hurdle
    with shelf.open() as store:
        writer = store.claim()
        with pytest.raises(tm.Unavailable, match="went away"):
            _append_all(writer, ROWS[:10], settled=settled)
        assert read_all(store) == ROWS[: bad - 1]


@pytest.mark.slow
def test_a_restoring_process_that_is_killed_goes_on(tmp_path: Path) -> None:
    chance = random.Random(11)
    with tm.Log(tmp_path / "log", sync="none") as log, log.publisher() as out:
        for start in range(0, 12_000, 12):
            out.send([b"%06d" % number * 5 for number in range(start, start + 12)])
        Archiver(
            log._store.hot,
            Archive(open_objects(tmp_path / "archive")),
            Sizes(segment_rows=100, manifest_segments=4),
        ).run(12_001)
        log.trim(501)
    command = [sys.executable, "-m", "tests.log.archive.restoring_child"]
    sure = 501
    for _ in range(3):
        seen = chance.randint(1, 3)
        # All that the three may do, however late they are killed, is less than there is.
        places = str(tmp_path / "archive"), str(tmp_path / "copy")
        child = subprocess.Popen(
            [*command, *places, str(seen + 30)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).resolve().parents[3],
        )
        assert child.stdin is not None
        assert child.stdout is not None
        for _ in range(seen):
            assert int(child.stdout.readline()) > sure, "it ended by itself"
        time.sleep(chance.random() * 0.05)  # The moment is what is tried out.
        child.kill()
        sure = max([sure, *map(int, child.stdout.read().split())])
        child.wait()
        child.stdin.close()
        child.stdout.close()
        with tm.Log(tmp_path / "copy") as half:
            assert sure <= half.ends().next
            sure = half.ends().next
            assert half.ends().first == 501
    assert sure < 12_001, "it was done before it was killed"
    tm.restore(tmp_path / "archive", tmp_path / "copy")
    with tm.Log(tmp_path / "copy") as restored, tm.Log(tmp_path / "log") as log:
        same(restored, log)
    assert tm.doctor.verify(tmp_path / "copy").is_healthy


@pytest.mark.slow
def test_a_bucket_is_restored_from_the_command_line(
    source: Path, seaweedfs: SeaweedFS, prefix: str, tmp_path: Path, shell: Shell
) -> None:
    with tm.Log(tmp_path / "orders") as log, log.publisher() as out:
        out.send(ROWS)
        log.archive(seaweedfs.url(prefix))
    done = shell.good(f"tidemill restore '{seaweedfs.url(prefix)}' copy/ --json").json()
    assert (done["rows"], done["first"], done["next"], done["segments"]) == (60, 1, 61, 1)
    assert shell.good(f"tidemill restore '{seaweedfs.url(prefix)}' copy/").out == (
        "restored 0 rows from 0 segments, 0 bytes; the next row is 61\n"
    )
    with tm.Log(shell.folder / "copy") as restored, tm.Log(tmp_path / "orders") as log:
        same(restored, log)
    shell.refused("tidemill restore nowhere/ other/", 4, "not-found")
    shell.refused(f"tidemill restore '{seaweedfs.url(prefix)}' log/", 3, "invalid-input")
