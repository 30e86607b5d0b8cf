"""The sink on a real cluster, whose executors are processes of their own, and are killed."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

import tidemill as tm
from tests.services.spark_cluster import Cluster
from tests.spark.sink.conftest import Killed
from tests.spark.sink.killed_source import POINTS
from tests.spark.sink.outputs import (
    Output,
    add_files,
    expected,
    forget_last_commit,
    numbered,
    run,
    start,
)

pytestmark = pytest.mark.slow


def hindered(frame: DataFrame, marker: str) -> DataFrame:
    """The same rows; but the first task to come is stuck behind its first rows, until it dies."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            try:
                descriptor = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                continue
            os.write(descriptor, str(os.getpid()).encode())
            os.close(descriptor)
            time.sleep(600)

    # Else Spark would see to it that the rows are made once, and then be written.
    return frame.mapInArrow(work, frame.schema)


def kill_executor_of(cluster: Cluster, marker: Path, killed: list[int]) -> None:
    """Wait until a task is stuck, and kill the executor that runs it."""
    deadline = time.monotonic() + 600
    while not marker.exists() or not marker.read_text():
        if time.monotonic() > deadline:
            return
        time.sleep(0.05)
    above = {process.pid for process in psutil.Process(int(marker.read_text())).parents()}
    for executor in cluster.executors():
        if executor.pid in above:
            executor.send_signal(signal.SIGKILL)
            killed.append(executor.pid)


@pytest.mark.parametrize("kind", ["queue", "mysql"])
def test_an_executor_killed_in_the_middle_of_a_batch_costs_nothing(
    cluster_spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    output = Output.of(kind, tmp_path, request)
    frame = cluster_spark.range(0, 40_000, 1, 4).selectExpr("id AS n", "1L AS key")
    frame = hindered(frame, str(tmp_path / "stuck"))
    if kind != "queue":
        frame = frame.drop("key")
    killed: list[int] = []
    killer = threading.Thread(
        target=kill_executor_of, args=(cluster, tmp_path / "stuck", killed), daemon=True
    )
    killer.start()
    writer = frame.write.format("tidemill").mode("append").options(**output.options)
    writer.option("txnAppId", "load").option("txnVersion", "0").save(output.address)
    killer.join()
    assert len(killed) == 1
    assert output.numbers() == list(range(40_000))


def test_a_streaming_query_survives_the_death_of_an_executor(
    cluster_spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    checkpoint: str,
    request: pytest.FixtureRequest,
) -> None:
    output = Output.of("log", tmp_path, request)
    add_files(tmp_path / "in", range(3))
    killed: list[int] = []
    killer = threading.Thread(
        target=kill_executor_of, args=(cluster, tmp_path / "stuck", killed), daemon=True
    )
    killer.start()
    frame = hindered(numbered(cluster_spark, tmp_path / "in"), str(tmp_path / "stuck"))
    query = start(frame, output, checkpoint)
    query.awaitTermination()
    killer.join()
    assert len(killed) == 1
    assert output.numbers() == expected(3)


def test_a_query_from_log_to_queue_repeats_a_batch_without_a_trace(
    cluster_spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    """Source and sink at once; the commit log loses an entry, then the checkpoint is deleted."""
    output = Output("queue", str(tmp_path / "queue"))
    source = cluster_spark.readStream.format("tidemill").option("startingOffsets", "earliest")
    with tm.Log(tmp_path / "log", schema=pa.schema([("n", pa.int64())])) as log:
        for first in (0, 20):
            with log.publisher() as out:
                out.send([{"n": n} for n in range(first, first + 20)])
            frame = source.option("minPartitions", "2").load(str(tmp_path / "log"))
            frame = frame.selectExpr("n", "-n AS key")
            run(frame, output, checkpoint, txnAppId="copy", queryName="copy")
            assert sorted(output.numbers()) == list(range(first + 20))
            if not first:
                forget_last_commit(checkpoint)
    shutil.rmtree(checkpoint)
    with pytest.raises(StreamingQueryException, match="TransactionRewound: number 0 of"):
        run(frame, output, checkpoint, txnAppId="copy")
    assert sorted(output.numbers()) == list(range(40))


def test_drivers_killed_at_each_point_are_followed_by_others(
    free_cluster: Cluster,
    tmp_path: Path,
    checkpoint: str,
    killed: Killed,
    request: pytest.FixtureRequest,
) -> None:
    """One query, and five drivers: each finishes the batch of the one before, and all but the last
    are killed in the next.
    """
    output = Output.of("mysql", tmp_path, request)
    add_files(tmp_path / "in", range(len(POINTS) + 2))
    for batch, point in enumerate(POINTS, start=1):
        killed.at(point, output, batch=batch, master=free_cluster.url)
    spark: SparkSession = request.getfixturevalue("cluster_spark")
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(len(POINTS) + 2)


def test_a_driver_that_was_thought_dead_changes_nothing(
    half_cluster_spark: SparkSession,
    cluster: Cluster,
    tmp_path: Path,
    checkpoint: str,
    killed: Killed,
) -> None:
    """Two drivers on one checkpoint: the first hangs before it commits, the second goes on."""
    output = Output("queue", str(tmp_path / "queue"))
    add_files(tmp_path / "in", range(3))
    with killed.waiting(output, batch=1, master=cluster.url) as driver:
        run(numbered(half_cluster_spark, tmp_path / "in"), output, checkpoint)
        assert output.numbers() == expected(3)
    assert "TransactionRewound" in driver.errors
    assert output.numbers() == expected(3)
