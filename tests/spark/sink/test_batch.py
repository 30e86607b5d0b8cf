"""Batch writes: all rows at once, in the order of their partitions, and once if they say so."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import tidemill as tm
from tests.spark.sink.outputs import Output
from tidemill.spark import read

pytestmark = pytest.mark.slow


def write(frame: DataFrame, output: Output, **options: str) -> None:
    writer = frame.write.format("tidemill").mode("append").options(**output.options, **options)
    writer.save(output.address)


@pytest.mark.parametrize("kind", ["queue", "log", "mysql", "postgres"])
def test_a_write_is_there_in_order_and_once(
    spark: SparkSession, tmp_path: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    output = Output.of(kind, tmp_path, request)
    key = ["n DIV 1000 AS key"] if kind == "queue" else []
    frame = spark.range(0, 5000, 1, 3).selectExpr("id AS n", "id").selectExpr("n", *key)
    for _ in range(2):
        write(frame, output, txnAppId="load", txnVersion="7")
    assert output.numbers() == list(range(5000))
    with pytest.raises(PySparkException, match="TransactionRewound: number 6"):
        write(frame, output, txnAppId="load", txnVersion="6")
    # A partition without rows, and a write without any; then one that has no transaction.
    write(frame.where("n < 2"), output, txnAppId="load", txnVersion="8")
    write(frame.where("n < 0"), output, txnAppId="load", txnVersion="9")
    for _ in range(2):
        write(frame.where("n > 4998"), output)
    assert output.numbers() == [*range(5000), 0, 1, 4999, 4999]
    if kind in ("queue", "log"):
        assert list(Path(output.address).glob("staging/*")) == []
    assert read(spark, output.address).where("n < 4999").count() == 5001


def test_types_and_keys_arrive_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        "SELECT timestamp'2026-01-01 00:00:00' AS at, -5L AS n, array(named_struct('a', 1)) AS l, "
        "map('k', date'2026-02-03') AS m, cast(1.50 AS DECIMAL(9, 2)) AS d, "
        "timestamp_ntz'2026-01-01 00:00:00' AS local, cast(null AS STRING) AS nothing, true AS yes"
    )
    output = Output("queue", str(tmp_path / "queue"))
    write(frame, output, key="at")
    write(frame, output, key="n")
    with tm.PriorityQueue(output.address) as queue:
        first, second = queue.pop(2).rows()
    assert (first[0], second[0]) == (-5, 1_767_225_600_000_000_000)
    assert first[1] == second[1]
    row = first[1]
    assert (row["l"], row["m"], str(row["d"])) == (
        [{"a": 1}],
        [("k", row["m"][0][1])],
        "1.50",
    )
    assert (row["nothing"], row["yes"], row["n"]) == (None, True, -5)
    assert (row["at"].isoformat(), row["local"].isoformat()) == (
        "2026-01-01T00:00:00+00:00",
        "2026-01-01T00:00:00",
    )


def test_what_a_queue_gave_is_written_to_another_without_its_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    source, goal = (Output("queue", str(tmp_path / name)) for name in ("source", "goal"))
    log = Output("log", str(tmp_path / "log"))
    write(spark.range(0, 100, 1, 2).selectExpr("id AS n", "-id AS key"), source)
    frame = spark.read.format("tidemill").load(source.address)
    assert frame.columns == ["seq", "key", "time", "n"]
    write(frame, goal)
    write(frame.orderBy("seq").drop("key"), log)
    with tm.PriorityQueue(goal.address) as queue:
        assert queue.schema.names == ["n"]
        assert queue.pop(2).rows() == [(-99, {"n": 99}), (-98, {"n": 98})]
    assert sorted(log.numbers()) == list(range(100))
    assert set(log.rows()[0]) == {"n"}


def test_a_plan_that_is_quoted_shows_no_password(spark: SparkSession) -> None:
    frame = spark.sql("SELECT make_interval(1, 2) AS x")
    with pytest.raises(PySparkException, match="AppendData") as caught:
        write(frame, Output("log", "mysql://app:secret@127.0.0.1/shop/orders"))
    assert "secret" not in str(caught.value)


def test_a_key_that_is_null_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    output = Output("queue", str(tmp_path / "queue"))
    frame = spark.sql("SELECT if(id = 1, null, id) AS key, id AS n FROM range(3)")
    with pytest.raises(PySparkException, match=r"InvalidKey: the key of row .* is null"):
        write(frame, output)
    write(frame.where("key IS NOT NULL"), output)
    assert sorted(output.numbers()) == [0, 2]


def test_what_a_task_fails_over_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    # One task: another may still be staging when the job has ended, and its rows lie there a while.
    frame = spark.range(0, 100, 1, 1).selectExpr("id AS n")
    output = Output("log", str(tmp_path / "log"))
    write(frame, output)
    with pytest.raises(PySparkException, match="nobody wants 77"):
        write(
            frame.selectExpr("if(n = 77, raise_error('nobody wants 77'), n) AS n"),
            output,
            txnAppId="load",
            txnVersion="0",
        )
    assert output.numbers() == list(range(100))
    assert list(Path(output.address).glob("staging/*/*")) == []
    write(frame, output, txnAppId="load", txnVersion="0")
    assert len(output.numbers()) == 200


def test_a_queue_that_is_open_elsewhere_is_named_with_its_process(
    spark: SparkSession, tmp_path: Path
) -> None:
    output = Output("queue", str(tmp_path / "queue"))
    frame = spark.sql("SELECT 1L AS key, 2L AS n")
    write(frame, output)
    with (
        tm.PriorityQueue(output.address),
        pytest.raises(PySparkException, match=f"Locked: .*is open in process {os.getpid()}"),
    ):
        write(frame, output)
    write(frame, output)
    assert output.numbers() == [2, 2]
