"""The source on a real cluster: executors are other processes, and may be killed at any time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.services.mariadb import MariaDB
from tests.services.spark_cluster import Cluster
from tidemill.spark import read

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64())])
ROWS = 40_000
_START_S_MAX = 120.0


def numbers(rows: int) -> pa.Table:
    return pa.table({"n": np.arange(rows)})


@pytest.mark.parametrize("kind", ["log", "queue", "mysql"])
def test_executors_read_what_the_driver_planned(
    kind: str, cluster_spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = str(tmp_path)
    if kind == "queue":
        with tm.PriorityQueue(url, schema=NUMBERS) as queue:
            for start in range(0, ROWS, 1_000):
                queue.push(numbers(ROWS).slice(start, 1_000))
    else:
        if kind == "mysql":
            server: MariaDB = request.getfixturevalue("mariadb")
            url = server.url(request.getfixturevalue("database"), "orders")
        with tm.Log(url, schema=NUMBERS) as log, log.publisher() as out:
            for start in range(0, ROWS, 1_000):
                out.send(numbers(ROWS).slice(start, 1_000))
    found = read(cluster_spark, url, minPartitions=4).selectExpr("count(*)", "sum(n)", "max(seq)")
    assert found.first() == (ROWS, ROWS * (ROWS - 1) // 2, ROWS)


def test_a_killed_executor_costs_no_row_and_doubles_none(
    cluster: Cluster, cluster_spark: SparkSession, tmp_path: Path
) -> None:
    with tm.PriorityQueue(tmp_path, schema=NUMBERS) as queue:
        for start in range(0, ROWS, 1_000):
            queue.push(numbers(ROWS).slice(start, 1_000))
        started, go = tmp_path / "started", tmp_path / "go"
        count = _count_slowly(cluster_spark, tmp_path, started, go)
        outcome: list[object] = []
        thread = threading.Thread(target=lambda: outcome.append(count()))
        thread.start()
        try:
            deadline = time.monotonic() + _START_S_MAX
            while not started.exists():
                # Another process makes the file; there is no event to wait for.
                assert time.monotonic() < deadline
                time.sleep(0.05)
            # In the middle of its task, with the rows that it has read.
            executors = {one.pid for one in cluster.executors()}
            cluster.kill_executor()
            # What the tasks that run again read is of the same moment as before.
            queue.clear()
        finally:
            go.touch()
            thread.join()
    assert outcome == [(ROWS, ROWS * (ROWS - 1) // 2)]
    assert {one.pid for one in cluster.executors()} != executors


def _count_slowly(
    spark: SparkSession, folder: Path, started: Path, go: Path
) -> Callable[[], object]:
    """A query whose tasks say that they have rows, and wait until they may go on."""

    def wait(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            started.touch()
            while not go.exists():
                time.sleep(0.05)
            yield batch

    found = read(spark, folder, minPartitions=6).mapInArrow(
        wait, "seq long, key long, time timestamp, n long"
    )
    return lambda: found.selectExpr("count(*)", "sum(n)").first()
