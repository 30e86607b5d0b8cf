"""Streaming reads: every row once, in order, across restarts, and never a loss in silence."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import tidemill as tm
from tests.services.mariadb import MariaDB
from tidemill.errors import Fenced, InvalidInput, MissingRows, Trimmed
from tidemill.spark.address import find
from tidemill.spark.data_source import TidemillDataSource
from tidemill.spark.source import arrived_rows
from tidemill.spark.source.log_rows import LogPosition, LogRows
from tidemill.spark.source.rows import open_rows
from tidemill.spark.source.stream_reader import StreamReader

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64())])


class Query:
    """A streaming query to Parquet files, which Spark itself makes exactly once."""

    def __init__(self, spark: SparkSession, source: Path | str, folder: Path) -> None:
        self.spark = spark
        self.source = str(source)
        self.checkpoint = folder / "checkpoint"
        self.output = folder / "output"

    def frame(self, **options: object) -> DataFrame:
        texts = {name: str(value) for name, value in options.items()}
        return self.spark.readStream.format("tidemill").options(**texts).load(self.source)

    def run(self, **options: object) -> list[int]:
        """Read what is there now; returns the rows of each micro-batch."""
        query = (
            self.frame(**options)
            .writeStream.format("parquet")
            .option("path", str(self.output))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress]

    def rows(self, column: str = "n") -> list[Any]:
        found = self.spark.read.parquet(str(self.output)).select("seq", column).orderBy("seq")
        return [row[column] for row in found.collect()]

    def forget_last_commit(self) -> None:
        """As if the driver had died between the sink's commit and its own."""
        commits = self.checkpoint / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        (commits / f"{last}").unlink()
        (commits / f".{last}.crc").unlink()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[tm.Log]:
    with tm.Log(tmp_path / "log", schema=NUMBERS) as log:
        yield log


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> Query:
    return Query(spark, tmp_path / "log", tmp_path)


def send(log: tm.Log, numbers: range) -> None:
    with log.publisher() as out:
        for first in range(numbers.start, numbers.stop, 10):
            out.send([{"n": n} for n in range(first, min(first + 10, numbers.stop))])


def reader(source: Path | str, **options: str) -> StreamReader:
    """What Spark has beside its driver, in this process, so that a test can be Spark."""
    made = TidemillDataSource(CaseInsensitiveDict({"path": str(source), **options}))
    found = made.streamReader(made.schema())
    assert isinstance(found, StreamReader)
    return found


def test_every_row_is_read_once_across_restarts_and_a_lost_commit_entry(
    query: Query, log: tm.Log
) -> None:
    send(log, range(25))
    batches = query.run(startingOffsets="earliest", consumer="copy", maxOffsetsPerTrigger=10)
    assert [rows for rows in batches if rows] == [10, 10, 5]
    # Spark commits a micro-batch when it begins the next one.
    assert log.consumers() == {"copy": 20}
    send(log, range(25, 40))
    query.run(startingOffsets="earliest", consumer="copy")
    assert log.consumers() == {"copy": 25}
    query.forget_last_commit()
    log.trim(before=1_000)
    assert log.ends().first == 26
    query.run(startingOffsets="earliest", consumer="copy")
    assert query.rows() == list(range(40))


def test_a_query_is_a_consumer_whose_lag_shows(query: Query, log: tm.Log, tmp_path: Path) -> None:
    send(log, range(50))
    query.run(startingOffsets="earliest", consumer="copy", maxOffsetsPerTrigger=20)
    command = [sys.executable, "-m", "tidemill.gateway.command_line", "lag", "--json"]
    done = subprocess.run([*command, tmp_path / "log"], capture_output=True, check=True)
    assert json.loads(done.stdout)["lag"] == {"copy": 10}


def test_a_queue_is_followed_in_the_order_of_arrival_whoever_pops(
    spark: SparkSession, tmp_path: Path
) -> None:
    with tm.PriorityQueue(tmp_path / "queue", schema=NUMBERS) as queue:
        query = Query(spark, tmp_path / "queue", tmp_path)
        with pytest.raises(StreamingQueryException, match="name one for this query"):
            query.run()
        queue.push([(-3, {"n": 0}), (7, {"n": 1})])
        query.run(consumer="copy", startingOffsets="earliest")
        queue.push([(-9, {"n": 2})])
        queue.pop(3)
        queue.push([(5, {"n": 3})])
        assert queue.pop(1).rows() == [(5, {"n": 3})]
        query.run(consumer="copy")
        assert query.rows() == [0, 1, 2, 3]
        assert query.rows("key") == [-3, 7, -9, 5]
        assert queue.consumers() == {"copy": 2}


def test_no_more_of_a_queue_is_read_at_once_than_its_bytes_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow cannot hold more than 2 GiB in a column of a batch, and items may have 64 MiB."""
    monkeypatch.setattr(arrived_rows, "TASK_READ_BYTES_MAX", 20_000)
    with tm.PriorityQueue(tmp_path / "queue", sync="none") as queue:
        for key in range(30):
            queue.push([(key, bytes(3_000))])
    rows = open_rows(find(str(tmp_path / "queue")), fail_on_loss=True)
    batches = list(rows.read(5, 28, fail_on_loss=True))
    rows.close()
    assert [seq for batch in batches for seq in batch["seq"].to_pylist()] == list(range(5, 28))
    assert max(batch.num_rows for batch in batches) <= 6


def test_rows_trimmed_behind_the_checkpoint_stop_the_query_unless_told_otherwise(
    query: Query, log: tm.Log
) -> None:
    send(log, range(10))
    query.run(startingOffsets="earliest")
    send(log, range(10, 40))
    assert log.trim(before=21) == 21
    with pytest.raises(StreamingQueryException, match=r"rows 11 to 20 of .* were trimmed"):
        query.run()
    query.run(failOnDataLoss="false")
    assert query.rows() == [*range(10), *range(20, 40)]


def test_rows_that_arrive_while_it_runs_are_for_the_next_run(query: Query, log: tm.Log) -> None:
    send(log, range(20))
    source = reader(query.source, startingOffsets="earliest", maxOffsetsPerTrigger="15")
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    send(log, range(20, 30))
    first = source.latestOffset(start, source.getDefaultReadLimit())
    second = source.latestOffset(first, source.getDefaultReadLimit())
    assert (first, second) == ({"next": 16}, {"next": 21})
    assert source.latestOffset(second, source.getDefaultReadLimit()) == second
    assert source.reportLatestOffset() == {"next": 31}
    source.stop()


def test_a_query_keeps_its_columns_and_a_restarted_one_has_the_new(
    query: Query, log: tm.Log, tmp_path: Path
) -> None:
    send(log, range(5))
    frame = query.frame(startingOffsets="earliest", consumer="copy")
    log.close()
    wider = NUMBERS.append(pa.field("city", pa.utf8()))
    with tm.Log(tmp_path / "log", schema=wider) as later:
        with later.publisher() as out:
            out.send([{"n": 5, "city": "Ghent"}])
        written = frame.writeStream.format("parquet").option("path", str(query.output))
        written.option("checkpointLocation", str(query.checkpoint)).trigger(
            availableNow=True
        ).start().awaitTermination()
        assert "city" not in query.spark.read.parquet(str(query.output)).columns
        with later.publisher() as out:
            out.send([{"n": 6, "city": "Lyon"}])
        query.run(startingOffsets="earliest", consumer="copy")
        assert query.rows() == list(range(7))
        cities = query.spark.read.option("mergeSchema", "true").parquet(str(query.output))
        assert [row.city for row in cities.where("city IS NOT NULL").collect()] == ["Lyon"]


def test_a_log_on_mysql_is_followed_while_its_publisher_writes(
    spark: SparkSession, mariadb: MariaDB, database: str, tmp_path: Path
) -> None:
    url = mariadb.url(database, "orders")
    with tm.Log(url, schema=NUMBERS) as log, log.publisher() as out:
        out.send([{"n": n} for n in range(100)])
        query = Query(spark, url, tmp_path)
        stop = threading.Event()
        sent = 100

        def write() -> None:
            nonlocal sent
            # A pace that the micro-batches keep up with.
            while not stop.wait(0.05):
                out.send([{"n": n} for n in range(sent, sent + 20)])
                sent += 20

        thread = threading.Thread(target=write)
        thread.start()
        options = {"startingOffsets": "earliest", "consumer": "copy"}
        try:
            query.run(**options, maxOffsetsPerTrigger=1_000)
        finally:
            stop.set()
            thread.join()
        query.run(**options)
        assert query.rows() == list(range(sent))


@pytest.mark.parametrize("place", ["folder", "mysql"])
def test_a_second_query_of_one_consumer_fences_the_first(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path / "log")
    if place == "mysql":
        server, database = (request.getfixturevalue(name) for name in ("mariadb", "database"))
        url = server.url(database, "orders")
    with tm.Log(url, schema=NUMBERS) as log:
        send(log, range(10))
        old = reader(url, startingOffsets="earliest", consumer="copy")
        start = old.initialOffset()
        new = reader(url, consumer="copy")
        assert new.latestOffset(start, ReadAllAvailable()) == {"next": 11}
        with pytest.raises(Fenced):
            old.commit({"next": 5})
        new.commit({"next": 7})
        assert log.consumers() == {"copy": 6}
        old.stop()
        new.stop()


def test_two_queries_of_one_consumer_of_a_queue_do_not_run_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidemill.spark.source.arrived_rows._LOCKED_S_MAX", 0.2)
    tm.PriorityQueue(tmp_path).close()
    old, new = (reader(tmp_path, consumer="copy") for _ in range(2))
    old.initialOffset()
    with pytest.raises(tm.Locked):
        new.initialOffset()
    old.stop()
    assert new.initialOffset() == {"next": 1}
    new.stop()


def test_where_a_new_query_begins(log: tm.Log, tmp_path: Path) -> None:
    send(log, range(30))
    first = log.read(11, 1).first
    assert first is not None

    def begin(**options: str) -> int:
        source = reader(tmp_path / "log", **options)
        found = source.initialOffset()["next"]
        source.stop()
        return found

    assert begin() == 31
    assert begin(startingOffsets="earliest") == 1
    assert begin(startingOffsets="7") == 7
    assert begin(startingTimestamp=first.time.isoformat()) == 11
    with pytest.raises(InvalidInput, match="startingTimestamp is in the future"):
        begin(startingTimestamp=(datetime.now(UTC) + timedelta(hours=1)).isoformat())
    log.receiver("billing", start=15).close()
    assert begin(consumer="billing") == 15
    assert begin(consumer="billing", startingOffsets="20") == 20
    assert begin(consumer="new") == 31
    with pytest.raises(InvalidInput, match="ends at 31"):
        begin(startingOffsets="32", consumer="never")
    assert "never" not in log.consumers()


@pytest.mark.parametrize(
    "begin", [{"startingOffsets": "earliest"}, {"startingTimestamp": "2000-01-01T00:00:00+00:00"}]
)
def test_a_query_that_begins_while_rows_are_trimmed_begins_behind_them(
    log: tm.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begin: dict[str, str]
) -> None:
    send(log, range(30))
    source = reader(tmp_path / "log", consumer="new", **begin)
    claim = LogRows.claim

    def trim_and_claim(rows: LogRows, consumer: str, start: int) -> LogPosition:
        log.trim(before=11)
        return claim(rows, consumer, start)

    monkeypatch.setattr(LogRows, "claim", trim_and_claim)
    start = source.initialOffset()
    assert start == {"next": 11}
    assert source.latestOffset(start, source.getDefaultReadLimit()) == {"next": 31}
    source.stop()


def test_a_queue_whose_consumer_is_gone_or_ahead_is_a_loss(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, schema=NUMBERS) as queue:
        queue.push([(1, {"n": 0}), (2, {"n": 1}), (3, {"n": 2})])
        source = reader(tmp_path, consumer="copy")
        with pytest.raises(Trimmed, match="is not there, and the checkpoint at 2"):
            source.latestOffset({"next": 2}, ReadAllAvailable())
        source.stop()
        with queue.consumer("copy", start="earliest") as consumer:
            consumer.ack(2)
        source = reader(tmp_path, consumer="copy")
        with pytest.raises(Trimmed, match="is at 3 already"):
            source.partitions({"next": 2}, {"next": 4})
        assert source.latestOffset({"next": 3}, ReadAllAvailable()) == {"next": 4}
        source.stop()
        lenient = reader(tmp_path, consumer="copy", failOnDataLoss="false")
        planned = lenient.partitions({"next": 2}, {"next": 4})
        assert sum(batch.num_rows for one in planned for batch in lenient.read(one)) == 2
        lenient.stop()


def test_a_log_that_was_made_anew_is_a_loss(log: tm.Log, tmp_path: Path) -> None:
    send(log, range(10))
    source = reader(tmp_path / "log")
    for call in (
        lambda: source.latestOffset({"next": 50}, ReadAllAvailable()),
        lambda: source.partitions({"next": 5}, {"next": 50}),
    ):
        with pytest.raises(MissingRows, match="made anew"):
            call()
    with pytest.raises(InvalidInput, match="no Tidemill source wrote"):
        source.latestOffset({"orders": {"0": 5}}, ReadAllAvailable())
    source.stop()


def test_what_is_lost_is_passed_over_once_and_what_comes_later_is_read(
    log: tm.Log, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    send(log, range(10))
    log.trim(before=11)
    source = reader(tmp_path / "log", failOnDataLoss="false")
    limit = source.getDefaultReadLimit()
    for lost in ({"next": 5}, {"next": 50}):  # Trimmed in front; of a log that was longer once.
        assert source.latestOffset(lost, limit) == {"next": 11}
        assert "rows are left out" in caplog.text
        assert source.partitions(lost, {"next": 11}) == []
        caplog.clear()
        assert source.latestOffset({"next": 11}, limit) == {"next": 11}
        assert caplog.text == ""
    source.stop()


def test_a_query_goes_on_with_a_log_that_was_made_anew_if_it_is_told_so(
    query: Query, log: tm.Log, tmp_path: Path
) -> None:
    send(log, range(40))
    query.run(startingOffsets="earliest", consumer="copy")
    log.close()
    shutil.rmtree(tmp_path / "log")
    with tm.Log(tmp_path / "log", schema=NUMBERS) as anew:
        send(anew, range(100, 110))
        with pytest.raises(StreamingQueryException, match="made anew"):
            query.run(consumer="copy")
        query.run(consumer="copy", failOnDataLoss="false")
        send(anew, range(110, 120))
        query.run(consumer="copy")
        assert sorted(query.rows()) == [*range(40), *range(110, 120)]
        assert anew.consumers() == {"copy": 10}


def test_few_rows_wait_for_more_until_they_have_waited_enough(
    log: tm.Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = reader(
        tmp_path / "log",
        startingOffsets="earliest",
        minOffsetsPerTrigger="20",
        maxOffsetsPerTrigger="30",
        maxTriggerDelay="1m",
    )
    send(log, range(10))
    start = source.initialOffset()
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(30)
    assert source.latestOffset(start, limit) == start
    monkeypatch.setattr(source, "_waited_s", lambda: 61.0)
    assert source.latestOffset(start, limit) == {"next": 11}
    monkeypatch.setattr(source, "_waited_s", lambda: 0.0)
    assert source.latestOffset(start, ReadAllAvailable()) == {"next": 11}
    assert source.latestOffset(start, ReadMinRows(5)) == {"next": 11}
    send(log, range(10, 100))
    assert source.latestOffset(start, limit) == {"next": 31}
    source.stop()


def test_a_range_reads_the_same_however_often_and_in_whatever_parts(
    log: tm.Log, tmp_path: Path
) -> None:
    send(log, range(100))
    whole = reader(tmp_path / "log")
    parts = reader(tmp_path / "log", maxRecordsPerPartition="7", minPartitions="9")

    def seqs(source: StreamReader) -> list[int]:
        planned = source.partitions({"next": 13}, {"next": 88})
        found = [batch for one in planned for batch in source.read(one)]
        return [seq for batch in found for seq in batch.column("seq").to_pylist()]

    assert seqs(whole) == seqs(whole) == seqs(parts) == list(range(13, 88))
    assert whole.partitions({"next": 5}, {"next": 5}) == []
    whole.stop()
    parts.stop()


def test_what_a_stream_cannot_do_is_refused(log: tm.Log, tmp_path: Path) -> None:
    made: Callable[..., StreamReader] = reader
    for options, message in (
        ({"endingOffsets": "5"}, "no end"),
        ({"fork": "audit"}, "has no fork"),
        ({"snapshotSeconds": "5"}, "snapshotSeconds is for batches"),
        ({"buffers": "redis://localhost/0"}, "buffers is for rings"),
        ({"minSeq": "5"}, "bounds are for batches"),
    ):
        with pytest.raises(InvalidInput, match=message):
            made(tmp_path / "log", **options)
