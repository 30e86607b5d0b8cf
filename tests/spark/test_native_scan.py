"""Archived rows that Spark reads by itself: the same as those that the source gives."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tidemill as tm
from tidemill.batch import to_payload
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.spark import native_scan, read
from tidemill.spark.schema import spark_schema

NARROW = pa.schema([("number", pa.int32()), ("text", pa.utf8())])
WIDE = pa.schema(
    [
        *NARROW,
        ("price", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("wall", pa.timestamp("us")),
        ("instant", pa.timestamp("us", tz="UTC")),
        ("took", pa.duration("us")),
        ("tags", pa.list_(pa.struct([("name", pa.utf8()), ("at", pa.timestamp("us", tz="UTC"))]))),
        ("counts", pa.map_(pa.utf8(), pa.list_(pa.int64()))),
        ("odd `name`.", pa.struct([("deep", pa.struct([("bytes", pa.binary())]))])),
    ]
)
pytestmark = pytest.mark.slow

WHEN = datetime(2026, 2, 3, 4, 5, 6, 789, UTC)


@pytest.fixture(autouse=True)
def _small_segments_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_scan, "SMALL_BYTES", 0)


def wide(number: int) -> dict[str, Any]:
    if number % 7 == 0:
        return {"number": number}
    return {
        "number": number,
        "text": f"row {number} ä€",
        "price": Decimal(number) / 4,
        "day": date(1, 1, 1) if number % 2 else date(2026, 2, 3),
        "wall": datetime(1850 + number % 300, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001
        "instant": WHEN + timedelta(microseconds=number),
        "took": timedelta(seconds=-number, microseconds=number),
        "tags": [{"name": None, "at": WHEN}, None] if number % 3 else [],
        "counts": {"a": [1, None], "b": None},
        "odd `name`.": {"deep": {"bytes": b"\x00%d" % number} if number % 5 else None},
    }


def archive(log: tm.Log, place: Path, end: int, rows: int = 50) -> None:
    """Move rows to an archive, so many in each segment."""
    sizes = Sizes(segment_rows=rows, group_rows=20, compacted_segments=1000)
    Archiver(log._store.hot, Archive(open_objects(place)), sizes).run(end)


def fill(folder: Path, *, archived: int = 301, sent: int = 330) -> Path:
    """A log that gained columns on the way, most of it in an archive of several segments."""
    path = folder / "log"
    with tm.Log(path, schema=NARROW, segment_bytes=16_384) as log, log.publisher() as out:
        out.send([{"number": number, "text": "old"} for number in range(1, 121)])
        if archived > 120:
            archive(log, folder / "archive", 121)
    with tm.Log(path, schema=WIDE) as log, log.publisher() as out:
        for first in range(121, sent + 1, 30):
            rows = [wide(number) for number in range(first, min(first + 30, sent + 1))]
            out.send(to_payload(rows, schema=WIDE))
        if archived:
            archive(log, folder / "archive", archived)
    return path


def through_source(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    return spark.read.format("tidemill").options(**options).load(str(path))


def table(rows: DataFrame) -> pa.Table:
    return rows.orderBy("seq").toArrow()


def same(native: DataFrame, source: DataFrame) -> list[int]:
    """See that both give the same, the first by Spark's own reader; returns the numbers."""
    assert "FileScan parquet" in plan(native)
    assert native.dtypes == source.dtypes
    one, other = table(native), table(source)
    assert one.column_names == other.column_names
    for name in one.column_names:
        assert one[name].to_pylist() == other[name].to_pylist(), name
    return list(one["seq"].to_pylist())


def plan(rows: DataFrame) -> str:
    return str(rows._jdf.queryExecution().toString())


@pytest.mark.parametrize("has_row_index", [True, False])
def test_rows_are_those_of_the_source(
    spark: SparkSession, tmp_path: Path, has_row_index: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A schema that grew, nested types, times before there were zones; archived and hot rows."""
    monkeypatch.setattr(native_scan, "_HAS_ROW_INDEX", has_row_index)
    path = fill(tmp_path)
    native = read(spark, path)
    assert same(native, through_source(spark, path)) == [*range(1, 331)]
    assert native.where("seq between 90 and 130 and number > 100").count() == 30
    bounds = read(spark, path, seqs=(37, 288))
    source = through_source(spark, path, minSeq="37", maxSeq="288")
    assert same(bounds, source) == [*range(37, 289)]


def test_only_files_that_hold_wanted_rows_are_read(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path)
    with tm.Log(path) as log:
        times = log.read(121, rows_max=30).times.to_pylist()
    narrow = read(spark, path, seqs=(101, 150))
    assert len(narrow.inputFiles()) == 2, "of 50 rows each, one that ends at 120"
    assert "BatchScan tidemill" not in plan(narrow)
    by_time = read(spark, path, times=(times[0], times[-1]))
    limits = {
        "startingTimestamp": times[0].isoformat(),
        "endingTimestamp": (times[-1] + timedelta(microseconds=1)).isoformat(),
    }
    assert same(by_time, through_source(spark, path, **limits)) == [*range(121, 151)]
    assert read(spark, path, seqs=(310, None)).inputFiles() == [], "hot rows alone"


def test_a_query_that_wants_no_numbers_does_not_pay_for_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = read(spark, fill(tmp_path, sent=300))
    counted = plan(rows.selectExpr("sum(number)")).partition("Physical Plan")[2]
    assert "FileScan parquet [number" in counted
    assert "row_index" not in counted


def test_rows_that_were_trimmed_are_not_read(spark: SparkSession, tmp_path: Path) -> None:
    path = fill(tmp_path)
    with tm.Log(path) as log:
        assert log.trim(before=75) == 75
    assert same(read(spark, path), through_source(spark, path)) == [*range(75, 331)]
    with pytest.raises(PySparkException, match="were trimmed"):
        read(spark, path, startingOffsets="10").count()


def test_what_comes_later_is_not_part_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that were hot when it was planned may be archived and released by the time they are
    read, and those that come later are not part of it.
    """
    path = fill(tmp_path, archived=250)
    rows = read(spark, path)
    with tm.Log(path) as log:
        with log.publisher() as out:
            out.send(to_payload([wide(number) for number in range(331, 340)], schema=WIDE))
        log.archive()
    assert same(rows, through_source(spark, path, endingOffsets="331")) == [*range(1, 331)]


def test_small_segments_may_become_one_meanwhile(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    path = fill(tmp_path)
    rows = read(spark, path)
    assert rows.inputFiles() == []
    with tm.Log(path) as log:
        hot, objects = log._store.hot, open_objects(tmp_path / "archive")
        before = Archive(objects).look().count
        Archiver(hot, Archive(objects), Sizes(compacted_segments=3)).run(301)
        assert Archive(objects).look().count < before
    assert rows.count() == 330


def test_a_file_that_is_gone_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    """Rows that are trimmed between the plan and the query are missed, not left out."""
    path = fill(tmp_path)
    rows = read(spark, path)
    with tm.Log(path) as log:
        log.trim(before=130)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises((PySparkException, Py4JError), match="FILE_NOT_EXIST"):
            rows.agg({"number": "sum"}).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_without_a_way_to_the_archive_the_source_reads_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = fill(tmp_path / "none", archived=0)
    assert read(spark, empty).inputFiles() == []
    with tm.Log(empty) as log:
        archive(log, tmp_path / "none" / "archive", 1)
    assert (read(spark, empty).inputFiles(), read(spark, empty).count()) == ([], 330)
    assert read(spark, fill(tmp_path / "a[b]*")).inputFiles() == []
    path = fill(tmp_path)
    assert read(spark, path).inputFiles()
    for options in ({"failOnDataLoss": "false"}, {"minPartitions": 5}):
        assert read(spark, path, **options).inputFiles() == []
    monkeypatch.setattr(native_scan, "_base", lambda _: "s3a://bucket/archive")
    assert read(spark, path).inputFiles() == []
    monkeypatch.setattr(native_scan, "_S3A_SETTINGS", ("spark.app.name",))
    assert (read(spark, path).inputFiles(), read(spark, path).count()) == ([], 330)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("/srv/orders archive", "file:///srv/orders archive"),
        ("/srv/{orders}", None),
        ("s3://backups/orders?endpoint=http://localhost:1", "s3a://backups/orders"),
        ("memory:orders", None),
    ],
)
def test_an_archive_has_a_name_of_sparks(url: str, base: str | None) -> None:
    assert native_scan._base(url) == base


def test_columns_that_differ_by_case_alone_are_left_to_the_source() -> None:
    same = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    for kind, is_readable in (
        (pa.struct([("a", pa.struct([("A", pa.int64())]))]), True),
        (same, False),
        (pa.list_(same), False),
        (pa.map_(pa.string(), same), False),
    ):
        columns = spark_schema(pa.schema([("seq", pa.int64()), ("n", kind)]))
        assert native_scan._is_readable(columns, []) == is_readable
    for name, is_readable in (
        ("n", True),
        ("SEQ", False),
        ("_metadata", False),
        ("First_Seq", False),
    ):
        columns = spark_schema(pa.schema([("seq", pa.int64()), (name, pa.int64())]))
        assert native_scan._is_readable(columns, []) == is_readable
