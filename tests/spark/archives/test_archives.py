"""Executors archive and compact: the same archive, nothing lost, nothing twice, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.spark.stopping import Crash, run_until_through
from tidemill.errors import Corrupt, Fenced, InvalidInput, NotAQueue
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.manifest import PAGES, SEGMENTS
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.on_files.store import FileLog
from tidemill.log.tiered import open_archiver
from tidemill.spark import archive, compact, read
from tidemill.spark.archives import archive_job, compact_job
from tidemill.spark.archives.storing import stored
from tidemill.spark.archives.task import Place, StoreRange

pytestmark = pytest.mark.slow

NARROW = pa.schema([("n", pa.int64())])
WIDE = pa.schema([("n", pa.int64()), ("x", pa.float64())])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Sizes:
    """Segments of a hundred rows, pages of four segments, and rounds of three tasks."""
    sizes = Sizes(segment_rows=100, manifest_segments=4, compacted_segments=1000)
    for module in (archive_job, compact_job):
        monkeypatch.setattr(module, "Sizes", lambda: sizes)
        monkeypatch.setattr(module, "round_tasks", lambda _: 3)
    real = open_archiver

    def opened(log: Any, url: Any, **options: Any) -> Archiver:
        archiver = real(log, url, **options)
        archiver._sizes = sizes
        return archiver

    monkeypatch.setattr(archive_job, "open_archiver", opened)
    monkeypatch.setattr(compact_job, "open_archiver", opened)
    return sizes


def send(path: Path, start: int, stop: int, *, step: int = 40) -> None:
    with tm.Log(str(path)) as log, log.publisher() as out:
        for at in range(start, stop, step):
            numbers = np.arange(at, min(at + step, stop))
            columns = (
                {"n": numbers, "x": numbers / 4} if "x" in log.schema.names else {"n": numbers}
            )
            out.send(pa.table(columns))


def filled(path: Path, count: int = 1_000) -> Path:
    """A log that gained a column in the middle."""
    tm.Log(str(path), schema=NARROW).close()
    send(path, 0, count // 2)
    tm.Log(str(path), schema=WIDE).close()
    send(path, count // 2, count)
    return path


def check(path: Path, count: int) -> Archive:
    """Every row is there once, in order, and the archive is well; returns it."""
    with tm.Log(str(path)) as log:
        table = log.read(rows_max=10**6).to_arrow()
        report = log.verify_archive(deep=True)
        assert [finding.code for finding in report.findings if finding.code != "orphan"] == []
    assert table.column("seq").to_pylist() == [*range(1, count + 1)]
    assert table.column("n").to_pylist() == [*range(count)]
    return Archive(open_objects(f"{path}-archive"))


def named(found: Archive) -> set[str]:
    manifest = found.look()
    return {part.file for part in manifest.pages} | {one.file for one in found.segments(manifest)}


def objects(found: Archive) -> set[str]:
    return {*found.objects.names(SEGMENTS), *found.objects.names(PAGES)}


def test_tasks_make_the_archive_that_an_archiver_makes(
    spark: SparkSession, tmp_path: Path, small: Sizes
) -> None:
    log = filled(tmp_path / "log")
    steps: list[tm.Archived] = []
    done = archive(spark, log, f"{log}-archive", before=921, on_progress=steps.append)
    assert (done.first, done.next) == (1, 921)
    assert len(steps) > 2
    assert steps[-1] == done
    found = check(log, 1_000)
    manifest = found.look()
    assert (manifest.next, manifest.count) == (921, done.segments)
    assert len(manifest.pages) >= 1
    segments = list(found.segments(manifest))
    assert max(one.rows for one in segments) <= 100
    assert objects(found) == named(found)
    # The rest, and then nothing.
    assert archive(spark, log).rows == 80
    assert archive(spark, log).rows == 0
    check(log, 1_000)
    assert read(spark, log).count() == 1_000


@pytest.mark.parametrize(
    ("owner", "name", "before"), [(Archive, "swap", True), (FileLog, "release", False)]
)
def test_an_archive_that_ends_anywhere_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, small: Sizes, owner: type, name: str, before: bool
) -> None:
    log = filled(tmp_path / "log", 600)

    def work() -> None:
        archive(spark, log, f"{log}-archive")

    assert run_until_through(work, owner, name, before=before) > 1
    found = check(log, 600)
    assert found.look().next == 601
    # Who came last has swept what the others left.
    assert objects(found) == named(found)


def test_what_the_tasks_of_a_driver_that_died_have_stored_is_swept(
    spark: SparkSession, tmp_path: Path, small: Sizes
) -> None:
    log = filled(tmp_path / "log", 600)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive_job, "_check_whole", _dies)
        with pytest.raises(Crash):
            archive(spark, log, f"{log}-archive")
    found = Archive(open_objects(f"{log}-archive"))
    assert (named(found), len(objects(found)) > 2) == (set(), True)
    done = archive(spark, log)
    assert (done.rows, done.swept > 2) == (600, True)
    assert objects(found) == named(check(log, 600))


def _dies(*_: Any) -> None:
    raise Crash


def test_a_newer_archiver_fences_the_driver_and_its_tasks(
    spark: SparkSession, tmp_path: Path, small: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(tmp_path / "log", 600)
    real, calls = stored, iter(range(100))

    def overtaken(*arguments: Any) -> Any:
        found = real(*arguments)
        if next(calls) == 0:
            with tm.Log(str(log)) as other:
                other.archive(f"{log}-archive", before=51)
        return found

    monkeypatch.setattr(archive_job, "stored", overtaken)
    with pytest.raises(Fenced, match="another archiver took over"):
        archive(spark, log, f"{log}-archive")
    assert check(log, 600).look().next == 51
    # A task of the old one stores nothing any more.
    place = Place(f"{log}-archive", 1, small)
    with pytest.raises(Fenced, match="another archiver took over"):
        list(StoreRange(place, str(log), 51, 100).run())
    assert archive(spark, log).next == 601
    assert objects(check(log, 600)) == named(check(log, 600))


def test_rows_in_front_of_damage_are_archived(
    spark: SparkSession, tmp_path: Path, small: Sizes
) -> None:
    log = tmp_path / "log"
    with tm.Log(str(log), schema=NARROW, segment_bytes=16_384) as opened, opened.publisher() as out:
        for start in range(0, 2_000, 40):
            out.send(pa.table({"n": np.arange(start, start + 40)}))
    # Somewhere in the frame that holds row 450, in a segment that is not the last.
    segment = min((log / "journal").glob("*.segment"))
    data = bytearray(segment.read_bytes())
    data[data.index(np.arange(440, 448).tobytes())] ^= 0xFF
    segment.write_bytes(data)
    with pytest.raises(Corrupt, match="segment"):
        archive(spark, log, f"{log}-archive")
    assert Archive(open_objects(f"{log}-archive")).look().next == 441


def many_small(log: Path, count: int) -> None:
    """An archive of many small segments, the older of which stand in pages."""
    tm.Log(str(log), schema=WIDE).close()
    sizes = Sizes(segment_rows=5, manifest_segments=8, compacted_segments=1000)
    send(log, 0, count)
    with tm.Log(str(log)) as opened:
        hot = opened._store.hot
        Archiver(hot, Archive(open_objects(f"{log}-archive")), sizes).run(count + 1)


def test_small_segments_become_few_wherever_they_lie(
    spark: SparkSession, tmp_path: Path, small: Sizes
) -> None:
    log = tmp_path / "log"
    many_small(log, 503)
    send(log, 503, 520)
    before = check(log, 520).look()
    assert (before.count, len(before.pages) > 5) == (101, True)
    frame = read(spark, log)
    shown: list[tuple[int, float]] = []
    with tm.Log(str(log)) as reader:
        assert len(reader.read(start=1, rows_max=7)) == 7  # It knows the manifest as it was.
        done = compact(spark, log, on_progress=lambda *step: shown.append(step))
        # Who reads goes on: also what was planned before.
        numbers = reader.read(start=8, rows_max=1_000).to_arrow().column("n").to_pylist()
    assert numbers == [*range(7, 520)]
    assert frame.count() == 520
    found = check(log, 520)
    assert (
        found.look().count
        == done.total
        == before.count - done.segments_before + (done.segments_after)
    )
    assert done.total <= 20
    assert len(found.look().pages) <= 6
    assert [rows for rows, _ in shown] == sorted(rows for rows, _ in shown)
    assert (shown[-1], len(shown) > 1) == ((done.rows, 1.0), True)
    assert objects(found) == named(found)
    epoch = found.look().epoch
    while compact(spark, log).segments_before:
        epoch += 1
    # With nothing left to do, nobody is fenced.
    assert check(log, 520).look().epoch == epoch


def test_a_compaction_that_ends_anywhere_costs_nothing(
    spark: SparkSession, tmp_path: Path, small: Sizes
) -> None:
    log = tmp_path / "log"
    many_small(log, 203)

    def work() -> None:
        compact(spark, log)

    assert run_until_through(work, Archive, "swap", before=False) > 1
    found = check(log, 203)
    assert found.look().count < 10
    assert objects(found) == named(found)


def test_rows_that_are_trimmed_meanwhile_are_left_out(
    spark: SparkSession, tmp_path: Path, small: Sizes, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    many_small(log, 203)
    real = stored

    def overtaken(*arguments: Any) -> Any:
        found = real(*arguments)
        with tm.Log(str(log)) as opened:
            opened.trim(before=58)
        return found

    monkeypatch.setattr(compact_job, "stored", overtaken)
    compact(spark, log)
    with tm.Log(str(log)) as opened:
        assert opened.read(start=58, rows_max=1_000).to_arrow().column("n").to_pylist() == [
            *range(57, 203)
        ]
        assert opened.verify_archive(deep=True).is_healthy
    found = Archive(open_objects(f"{log}-archive"))
    assert objects(found) == named(found)


def test_what_cannot_be_archived_or_compacted_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    tm.Log(str(tmp_path / "log")).close()
    for job in (archive, compact):
        with pytest.raises(NotAQueue):
            job(spark, tmp_path / "nothing")
        with pytest.raises(InvalidInput, match="has no archive"):
            job(spark, tmp_path / "log")
    with pytest.raises(InvalidInput, match="bytes_max"):
        archive(spark, tmp_path / "log", tmp_path / "archive", bytes_max=-1)
    assert not (tmp_path / "nothing").exists()
    assert not (tmp_path / "archive").exists()
