"""Batch reads: a log's rows, and what is left of a queue, as of when the query is planned."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader

import tidemill as tm
from tests.services.mariadb import MariaDB
from tidemill.errors import ForkRemoved, InvalidInput, SchemaMismatch, Trimmed
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.log.frames import decode_rows
from tidemill.log.on_files import rows as log_rows
from tidemill.spark import read
from tidemill.spark.data_source import TidemillDataSource

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64())])


def reader(path: Path | str, **options: str) -> DataSourceReader:
    """What Spark's planner makes, in this process, so that a test can come between its steps."""
    source = TidemillDataSource(CaseInsensitiveDict({"path": str(path), **options}))
    return source.reader(source.schema())


def rows_of(reader: DataSourceReader, partitions: Any = None) -> list[dict[str, Any]]:
    given = reader.partitions() if partitions is None else partitions
    batches: list[Any] = [batch for one in given for batch in reader.read(one)]
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tm.Log]:
    """Ten frames with ten rows each: n = 0 to 99."""
    with tm.Log(tmp_path / "log", schema=NUMBERS) as log, log.publisher() as out:
        for first in range(0, 100, 10):
            out.send([{"n": n} for n in range(first, first + 10)])
        yield log


def test_a_log_is_its_rows(spark: SparkSession, log: tm.Log, tmp_path: Path) -> None:
    found = read(spark, tmp_path / "log")
    assert found.columns == ["seq", "time", "n"]
    rows = found.orderBy("seq").collect()
    assert [(row.seq, row.n) for row in rows] == [(n + 1, n) for n in range(100)]
    first = log.read(1, 1).first
    assert first is not None
    assert rows[0].time == first.time.replace(tzinfo=None)


def test_a_queue_is_what_is_left_of_it(spark: SparkSession, tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"%d" % key) for key in range(-5, 5)])
        audit = queue.fork("audit")
        queue.pop(3)
        audit.pop(1)
        left = [(key, b"%d" % key) for key in range(-2, 5)]
        found = spark.read.format("tidemill").load(str(tmp_path))
        assert found.columns == ["seq", "key", "time", "value"]
        assert [(row.key, bytes(row.value)) for row in found.orderBy("key").collect()] == left
        assert read(spark, tmp_path, fork="audit").selectExpr("min(key)").first() == (-4,)
        assert len(queue) == 7


def test_an_empty_queue_and_an_empty_log_have_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    tm.PriorityQueue(tmp_path / "queue").close()
    tm.Log(tmp_path / "log", schema=NUMBERS).close()
    assert read(spark, tmp_path / "queue").collect() == []
    assert read(spark, tmp_path / "log").agg({"n": "sum"}).first() == (None,)


def test_nested_types_and_every_kind_of_null_come_through(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            ("tags", pa.list_(pa.utf8())),
            ("counts", pa.map_(pa.utf8(), pa.int32())),
            ("deep", pa.struct([("at", pa.list_(pa.timestamp("us"))), ("ok", pa.bool_())])),
            ("price", pa.decimal128(12, 2)),
            ("when", pa.timestamp("us", tz="UTC")),
            ("took", pa.duration("us")),
            ("day", pa.date32()),
            ("small", pa.int8()),
        ]
    )
    given = [
        {
            "tags": ["a", None, ""],
            "counts": [("x", 1), ("y", None)],
            "deep": {"at": [datetime.fromisoformat("2026-01-02"), None], "ok": None},
            "price": None,
            "took": timedelta(seconds=1.5),
            "small": -128,
        },
        {"tags": [], "counts": [], "deep": None},
        {},
    ]
    with tm.Log(tmp_path, schema=schema) as log, log.publisher() as out:
        out.send(pa.Table.from_pylist(given, schema=schema))
    found = read(spark, tmp_path).orderBy("seq").drop("seq", "time").toArrow()
    wanted = tm.Log(tmp_path).read().to_arrow().drop_columns(["seq", "time"])
    assert found.to_pylist() == pa.Table.from_batches([wanted]).to_pylist()


def test_a_value_of_64_mib_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    large = bytes(64 * 1024 * 1024)
    with tm.Log(tmp_path) as log, log.publisher() as out:
        out.send([b"small", large, b"small"])
    found = read(spark, tmp_path).selectExpr("length(value) AS length").collect()
    assert sorted(row.length for row in found) == [5, 5, len(large)]


def test_what_comes_after_planning_is_not_part_of_it(log: tm.Log, tmp_path: Path) -> None:
    batch = reader(tmp_path / "log")
    planned = batch.partitions()
    with log.publisher() as out:
        out.send([{"n": 100}])
    assert [row["n"] for row in rows_of(batch, planned)] == list(range(100))
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(1, b"a"), (2, b"b")])
        batch = reader(tmp_path / "queue")
        planned = batch.partitions()
        queue.push([(0, b"new")])
        queue.pop(3)
        assert [row["value"] for row in rows_of(batch, planned)] == [b"a", b"b"]


def test_a_fork_removed_in_the_middle_is_read_to_its_end(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a"), (2, b"b")])
        queue.fork("audit")
        batch = reader(tmp_path, fork="audit")
        planned = batch.partitions()
        queue.fork("audit").remove()
        queue.clear()
        assert [row["key"] for row in rows_of(batch, planned)] == [1, 2]
        with pytest.raises(ForkRemoved, match="its forks: none"):
            batch.partitions()


def test_an_unreadable_frame_fails_the_query_or_is_left_out(
    spark: SparkSession, log: tm.Log, tmp_path: Path
) -> None:
    (segment,) = (tmp_path / "log" / "journal").glob("*.segment")
    data = segment.read_bytes()
    place = data.index((42).to_bytes(8, "little") + (43).to_bytes(8, "little"))
    segment.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
    with pytest.raises(PySparkException, match="rows 41 to 50 are damaged"):
        read(spark, tmp_path / "log").count()
    left = read(spark, tmp_path / "log", failOnDataLoss=False)
    assert sorted(row.n for row in left.collect()) == [*range(40), *range(50, 100)]
    queue_folder = tmp_path / "queue"
    with tm.PriorityQueue(queue_folder, schema=NUMBERS) as queue:
        queue.push([(1, {"n": 77})])
        queue.push([(2, {"n": 78})])
    (segment,) = (queue_folder / "journal").glob("*.segment")
    data = segment.read_bytes()
    place = data.index((77).to_bytes(8, "little"))
    segment.write_bytes(data[:place] + b"\xff" + data[place + 1 :])
    with pytest.raises(PySparkException, match=str(segment)):
        read(spark, queue_folder).count()
    assert [row.n for row in read(spark, queue_folder, failOnDataLoss=False).collect()] == [78]


def test_a_dataframe_keeps_its_columns_when_the_schema_gains_one(
    spark: SparkSession, log: tm.Log, tmp_path: Path
) -> None:
    before = read(spark, tmp_path / "log")
    wider = NUMBERS.append(pa.field("city", pa.utf8()))
    log.close()
    with tm.Log(tmp_path / "log", schema=wider) as later, later.publisher() as out:
        out.send([{"n": 100, "city": "Ghent"}])
        assert before.columns == ["seq", "time", "n"]
        assert before.agg({"n": "sum"}).first() == (5050,)
        after = read(spark, tmp_path / "log")
        assert after.columns == ["seq", "time", "n", "city"]
        assert [row.city for row in after.where("n >= 99").orderBy("n").collect()] == [
            None,
            "Ghent",
        ]


def test_a_schema_of_the_callers_picks_columns_and_is_checked(
    spark: SparkSession, log: tm.Log, tmp_path: Path
) -> None:
    source = spark.read.format("tidemill")
    assert source.schema("n long").load(str(tmp_path / "log")).agg({"n": "sum"}).first() == (4950,)
    with pytest.raises(PySparkException, match="has no column 'm'"):
        source.schema("m long").load(str(tmp_path / "log")).count()
    with pytest.raises(PySparkException, match="is int64"):
        source.schema("n string").load(str(tmp_path / "log")).count()


def test_the_options_say_from_where_to_where(log: tm.Log, tmp_path: Path) -> None:
    def numbers(**options: str) -> list[int]:
        return [row["seq"] for row in rows_of(reader(tmp_path / "log", **options))]

    assert numbers(startingOffsets="91") == list(range(91, 101))
    assert numbers(startingOffsets="3", endingOffsets='{"next": 5}') == [3, 4]
    assert numbers(startingOffsets="latest") == []
    time = log.read(51, 1).first
    assert time is not None
    assert numbers(endingTimestamp=time.time.isoformat())[-1] == 50
    assert numbers(startingTimestamp=time.time.isoformat())[0] == 51
    log.trim(before=11)
    assert numbers()[0] == 11
    assert numbers(startingOffsets="earliest", endingOffsets="13") == [11, 12]
    with pytest.raises(Trimmed, match="rows 5 to 10"):
        numbers(startingOffsets="5")
    assert numbers(startingOffsets="5", failOnDataLoss="false")[0] == 11
    for name, rows in (("startingOffsets", 0), ("endingOffsets", 90)):
        with pytest.raises(InvalidInput, match=f"{name} is 200, .* ends at 101"):
            numbers(**{name: "200"})
        assert len(numbers(**{name: "200", "failOnDataLoss": "false"})) == rows
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(1, b"a")])
        assert rows_of(reader(tmp_path / "queue", endingTimestamp="0")) == []


def test_a_relative_path_is_that_of_the_caller(
    spark: SparkSession, log: tm.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's Java stays in the folder where it was started."""
    monkeypatch.chdir(tmp_path)
    assert read(spark, "log").count() == log.ends().next - 1


def test_rows_trimmed_after_planning_fail_the_query_or_are_left_out(
    log: tm.Log, tmp_path: Path
) -> None:
    strict, lenient = (reader(tmp_path / "log", failOnDataLoss=flag) for flag in ("true", "false"))
    planned = strict.partitions()
    log.trim(before=31)
    with pytest.raises(Trimmed):
        rows_of(strict, planned)
    assert [row["seq"] for row in rows_of(lenient, planned)] == list(range(31, 101))


def test_work_is_divided_as_told(spark: SparkSession, log: tm.Log, tmp_path: Path) -> None:
    assert read(spark, tmp_path / "log").rdd.getNumPartitions() == 1
    assert read(spark, tmp_path / "log", minPartitions=5).rdd.getNumPartitions() == 5
    split = read(spark, tmp_path / "log", maxRecordsPerPartition=7)
    sizes = split.selectExpr("spark_partition_id() AS id").groupBy("id").count().collect()
    assert max(row["count"] for row in sizes) <= 7
    assert sum(row["count"] for row in sizes) == 100
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        queue.push([(key, b"x") for key in range(1_000)])
    divided = read(spark, tmp_path / "queue", maxRecordsPerPartition=300)
    assert divided.rdd.getNumPartitions() == 4
    assert divided.selectExpr("count(distinct key)").first() == (1_000,)


def test_only_the_frames_within_the_bounds_are_read(
    log: tm.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    read_frame = FrameReader.read

    def decode_counted(*arguments: Any) -> Any:
        counts["log"] += 1
        return decode_rows(*arguments)

    def read_counted(*arguments: Any) -> Any:
        counts["queue"] += 1
        return read_frame(*arguments)

    monkeypatch.setattr(log_rows, "decode_rows", decode_counted)
    monkeypatch.setattr(FrameReader, "read", read_counted)
    found = rows_of(reader(tmp_path / "log", minSeq="35", maxSeq="42"))
    assert ([row["seq"] for row in found], counts["log"]) == (list(range(35, 43)), 2)
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        for first in range(-50, 50, 10):
            queue.push([(key, b"x") for key in range(first, first + 10)])
    found = rows_of(reader(tmp_path / "queue", minKey="-3", maxKey="5"))
    assert ([row["key"] for row in found], counts["queue"]) == (list(range(-3, 6)), 2)
    assert rows_of(reader(tmp_path / "queue", minKey="5", maxKey="4")) == []


@pytest.mark.parametrize("setting", ["true", "false"])
def test_filters_of_one_query_do_not_reach_another(
    spark: SparkSession, log: tm.Log, tmp_path: Path, setting: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", setting)
    try:
        found = read(spark, tmp_path / "log")
        assert found.filter("seq > 95").count() == 5
        assert found.count() == 100
        assert found.filter("seq <= 10").union(found.filter("seq > 95")).count() == 15
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_a_log_on_mysql_while_its_publisher_writes(
    spark: SparkSession, mariadb: MariaDB, database: str
) -> None:
    url = mariadb.url(database, "orders")
    with tm.Log(url, schema=NUMBERS) as log, log.publisher() as out:
        out.send([{"n": n} for n in range(1_000)])
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                out.send([{"n": 1}] * 50)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(3):
                found = read(spark, url, minPartitions=3)
                rows, first, last = found.selectExpr("count(*)", "min(seq)", "max(seq)").first()  # type: ignore[misc]
                assert (rows, first) == (last, 1)
                assert rows >= 1_000
        finally:
            stop.set()
            thread.join()
    last = rows + 1
    assert read(spark, url, seqs=(last - 10, last)).count() == 11


def test_what_cannot_be_read_says_why(spark: SparkSession, log: tm.Log, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("other", {}, "holds no queue and no log"),
        ("nowhere", {}, "holds no queue and no log"),
        ("log", {"startingOffset": "1"}, "did you mean startingOffsets"),
        ("log", {"fork": "audit"}, "only queues have forks"),
        ("log", {"minKey": "1"}, "have no keys"),
        ("log", {"consumer": "me"}, "for streaming queries"),
    ]
    for path, options, message in cases:
        with pytest.raises((AnalysisException, PySparkException), match=message):
            read(spark, tmp_path / path, **options).count()
    with pytest.raises((AnalysisException, PySparkException), match="kept at gs:"):
        read(spark, "gs://bucket/orders").count()


def test_a_password_stays_out_of_messages(mariadb: MariaDB, database: str) -> None:
    mariadb.execute("CREATE USER IF NOT EXISTS app IDENTIFIED BY 'secret'")
    mariadb.execute("GRANT ALL ON *.* TO app")
    url = f"mysql://app:secret@127.0.0.1:{mariadb.port}/{database}/orders"
    tm.Log(url).close()
    with pytest.raises(InvalidInput) as caught:
        reader(url, endingOffsets="200").partitions()
    assert "secret" not in str(caught.value)
    assert "orders ends at 1" in str(caught.value)


def test_a_reader_refuses_what_the_queue_does_not_have(log: tm.Log, tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    source = TidemillDataSource(CaseInsensitiveDict({"path": str(tmp_path / "log")}))
    with pytest.raises(SchemaMismatch):
        source.reader(StructType().add("m", "long")).partitions()
    for name, why in (
        ("maxTriggerDelay", "is for streaming queries"),
        ("snapshotSeconds", "is for priority queues.*log is a log"),
    ):
        with pytest.raises(InvalidInput, match=f"{name} {why}"):
            reader(tmp_path / "log", **{name: "5m" if "Delay" in name else "5"})


def test_columns_that_differ_in_case_alone_are_refused_unless_some_are_named(
    tmp_path: Path,
) -> None:
    """Spark would find one of them, or none."""
    from pyspark.sql.types import StructType

    pair, reserved = (tmp_path / name for name in ("pair", "reserved"))
    for folder, names in ((pair, ["n", "N"]), (reserved, ["Time"])):
        schema = pa.schema([(name, pa.int64()) for name in names])
        with tm.Log(folder, schema=schema) as log, log.publisher() as out:
            out.send([dict.fromkeys(names, 7)])
    with pytest.raises(SchemaMismatch, match=f"{pair} has the columns 'n' and 'N', which Spark"):
        reader(pair)
    with pytest.raises(SchemaMismatch, match="has the columns 'time' and 'Time'"):
        reader(reserved)
    source = TidemillDataSource(CaseInsensitiveDict({"path": str(pair)}))
    assert rows_of(source.reader(StructType().add("N", "long"))) == [{"N": 7}]
