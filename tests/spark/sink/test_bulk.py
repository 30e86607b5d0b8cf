"""DataFrames that Spark's own writer puts into the archive of a log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import tidemill as tm
from tests.files.fake_clock import FakeClock
from tests.log.archive.test_archiver import stray
from tests.services.mariadb import MariaDB
from tests.spark.test_native_scan import WIDE, fill, same, through_source
from tidemill.log.archive.place import open_objects
from tidemill.spark import native_scan, read, write

pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.utf8())])


@pytest.fixture
def log(tmp_path: Path) -> str:
    return made(tmp_path, str(tmp_path / "log"))


def made(folder: Path, address: str, schema: pa.Schema = SCHEMA) -> str:
    """A log with two hot rows, and an archive of one that is still empty."""
    with tm.Log(address, schema=schema) as log:
        log.archive(folder / "archive")
        with log.publisher() as out:
            out.send([{schema.names[0]: 1}, {schema.names[0]: 2}])
    return address


def numbers(spark: SparkSession, start: int, end: int, partitions: int = 3) -> DataFrame:
    rows = spark.range(start, end, 1, partitions)
    return rows.select(F.col("id").alias("number"), F.format_string("row %d", "id").alias("text"))


def stored(address: str) -> list[Any]:
    with tm.Log(address) as log:
        batch = log.read(1, rows_max=10**6)
        times = batch.times.to_pylist()
        assert times == sorted(times)
        assert batch.first_seq == 1
        return [row["number"] for row in batch.rows()]


def left(folder: Path) -> set[str]:
    """What is in the archive and should not be."""
    staged = {str(path) for path in (folder / "archive" / "staging").glob("*")}
    return staged | stray(open_objects(folder / "archive"))


def test_rows_come_in_order_and_once(
    spark: SparkSession, log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbers(spark, 3, 1003)
    receipt = write(rows, log, txn_app_id="load", txn_version=1)
    assert receipt == tm.Receipt(3, 1002, 1000, "archived")
    assert stored(log) == [*range(1, 1003)]
    assert write(rows, log, txn_app_id="load", txn_version=1) == receipt
    with pytest.raises(tm.TransactionRewound):
        write(rows, log, txn_app_id="load", txn_version=0)
    # A publisher that lives is fenced. Its rows come first, and none behind them are older.
    ahead = FakeClock(time.time_ns() + 10**12)
    with tm.Log(log, clock=ahead) as opened, opened.publisher() as out:
        assert out.send([{"number": 1003}]).first == 1003
        again = numbers(spark, 1004, 1100, 1)
        assert write(again, log, txn_app_id="load", txn_version=2).first == 1004
        with pytest.raises(tm.Fenced):
            out.send([{"number": 0}])
    assert stored(log) == [*range(1, 1100)]
    assert left(tmp_path) == set()
    monkeypatch.setattr(native_scan, "SMALL_BYTES", 0)
    assert same(read(spark, log), through_source(spark, Path(log))) == [*range(1, 1100)]
    with tm.Log(log) as opened:
        receiver = opened.receiver("all", follow=False)
        assert sum(len(batch) for batch in receiver) == 1099
        receiver.close()
    assert tm.doctor.verify(log).findings == ()


def test_types_are_those_of_rows_that_were_sent(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a log gives to Spark, Spark writes to another, which gives the same to everybody."""
    source = fill(tmp_path / "source", archived=0, sent=200)
    target = made(tmp_path, str(tmp_path / "log"), WIDE)
    rows = through_source(spark, source).coalesce(1).sortWithinPartitions("seq")
    assert write(rows, target).count == 200
    with tm.Log(source) as one, tm.Log(target) as other:
        sent = one.read(1, rows_max=1000).to_arrow().drop_columns(["seq", "time"])
        loaded = other.read(3, rows_max=1000).to_arrow().drop_columns(["seq", "time"])
        assert loaded.schema.equals(sent.schema)
        assert loaded.to_pylist() == sent.to_pylist()
    monkeypatch.setattr(native_scan, "SMALL_BYTES", 0)
    same(read(spark, target), through_source(spark, Path(target)))


def test_columns_are_widened_added_or_refused(
    spark: SparkSession, log: str, tmp_path: Path
) -> None:
    small = spark.range(3, 5, 1, 1).select(F.col("id").cast("int").alias("number"))
    assert write(small, log).count == 2
    with tm.Log(log) as opened:
        assert opened.read(4).rows() == [{"number": 4, "text": None}]
    for rows, match in (
        (small.selectExpr("cast(number AS string) AS number"), "is text, and int64 is wanted"),
        (small.selectExpr("cast(number AS double) AS number"), "column 'number' is double"),
        (small.selectExpr("number", "1 AS more"), "more"),
        (small.selectExpr("1L AS key", "number"), "no keys"),
    ):
        with pytest.raises(tm.SchemaMismatch, match=match):
            write(rows, log)
    assert write(small.selectExpr("number", "1L AS more"), log, merge_schema=True).first == 5
    with tm.Log(log) as opened:
        assert opened.read(6).rows() == [{"number": 4, "text": None, "more": 1}]
        assert opened.read(1, rows_max=1).rows() == [{"number": 1, "text": None, "more": None}]
    assert left(tmp_path) == set()


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, log: str, tmp_path: Path) -> None:
    rows = numbers(spark, 3, 100).withColumn(
        "number", F.when(F.col("number") == 70, F.raise_error("no such row")).otherwise(1)
    )
    with pytest.raises(PySparkException, match="no such row"):
        write(
            rows.selectExpr("cast(number AS bigint) AS number"),
            log,
            txn_app_id="load",
            txn_version=1,
        )
    assert stored(log) == [1, 2]
    assert left(tmp_path) == set()
    assert spark.conf.get("spark.sql.parquet.outputTimestampType") == "INT96"


def test_what_has_no_archive_for_spark_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    rows = numbers(spark, 1, 2)
    tm.Log(tmp_path / "bare", schema=SCHEMA).close()
    with pytest.raises(tm.InvalidInput, match="has no archive"):
        write(rows, tmp_path / "bare")
    with pytest.raises(tm.NotAQueue):
        write(rows, tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    with tm.Log(tmp_path / "bare") as log:
        log.archive("memory:test-bulk")
    with pytest.raises(tm.InvalidInput, match="in a folder alone"):
        write(rows, tmp_path / "bare")
    with pytest.raises(tm.InvalidInput, match="both txnAppId and txnVersion"):
        write(rows, tmp_path / "bare", txn_app_id="load")


def test_a_log_on_a_server_is_loaded_the_same_way(
    spark: SparkSession, mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    address = made(tmp_path, mariadb.url(database, "log"))
    rows = numbers(spark, 3, 500)
    for _ in range(2):
        assert write(rows, address, txn_app_id="load", txn_version=1).last == 499
    with tm.Log(address) as log, log.publisher() as out:
        assert out.send([{"number": 500}]).first == 500
    assert stored(address) == [*range(1, 501)]
    assert left(tmp_path) == set()
