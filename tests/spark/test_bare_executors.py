"""Executors with nothing but what is shipped to them, some of whose tasks run twice at once."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

import tidemill as tm
from tests.docs.pages import ON_CLUSTER, program_of
from tests.services.spark_cluster import PYTHON_PATH, Cluster
from tests.spark.conftest import Place
from tests.spark.sink.outputs import Output
from tidemill.spark import read, ship

pytestmark = pytest.mark.slow

ROWS = 8_000
TASKS = 4


def overtaken(frame: DataFrame, folder: str) -> DataFrame:
    """The same rows; but two attempts at the last task wait for one another, behind their rows."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.partitionId() == TASKS - 1:
            attempt = context.attemptNumber()
            Path(folder, f"attempt-{attempt}").touch()
            deadline = time.monotonic() + 300
            while not Path(folder, f"attempt-{1 - attempt}").exists():
                # The other is a process of its own; there is no event to wait for.
                if time.monotonic() > deadline:
                    raise TimeoutError("the task was not run twice at once")
                time.sleep(0.01)

    return frame.mapInArrow(work, frame.schema)


def test_executors_without_tidemill_run_what_is_shipped(
    bare_spark: SparkSession, tmp_path: Path
) -> None:
    ship(bare_spark)

    def place(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"place": [tm.__file__]})

    rows = bare_spark.range(0, ROWS, 1, TASKS)
    places = {row.place for row in rows.mapInArrow(place, "place string").collect()}
    assert [re.sub("[0-9a-f]{16}", "…", place) for place in places] == [
        "./tidemill-….zip/tidemill/__init__.py"
    ]

    rows.selectExpr("id AS n").write.format("tidemill").mode("append").save(str(tmp_path / "in"))
    found = read(bare_spark, tmp_path / "in", minPartitions=TASKS).selectExpr("count(*)", "sum(n)")
    assert found.first() == (ROWS, ROWS * (ROWS - 1) // 2)


@pytest.mark.parametrize("kind", ["log", "mysql"])
def test_of_two_attempts_at_once_one_counts(
    bare_spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    ship(bare_spark)
    output = Output.of(kind, tmp_path, request)
    frame = bare_spark.range(0, ROWS, 1, TASKS).selectExpr("id AS n")
    writer = overtaken(frame, str(tmp_path)).write.format("tidemill").mode("append")
    writer.options(**output.options).save(output.address)
    # Each has seen the other, and so ran beside it.
    assert {path.name for path in tmp_path.glob("attempt-*")} == {"attempt-0", "attempt-1"}
    assert output.numbers() == list(range(ROWS))


def test_the_page_on_clusters_runs(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue("_place")
    place.clear()  # The executors of its session have all the cores.
    script = tmp_path / "page.py"
    script.write_text(
        program_of(ON_CLUSTER, url="spark://localhost:7077", ours=cluster.url, folder=tmp_path)
    )
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": PYTHON_PATH}
    ended = subprocess.run(
        [sys.executable, script], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
