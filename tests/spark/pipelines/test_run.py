"""Pipelines on the embedded Spark: each row to each sink once, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import tidemill as tm
from tests.spark.pipelines.numbers import NUMBERS, numbers_of, rows_of, send
from tests.spark.sink.outputs import forget_last_commit
from tidemill.spark import Pipeline, Sink, Source, pipeline, reject
from tidemill.spark.pipelines import run
from tidemill.spark.pipelines.parquet import sweep
from tidemill.spark.pipelines.state import State
from tidemill.spark.testing import try_out

pytestmark = pytest.mark.slow


def three_ways(folder: Path) -> Pipeline:
    """One source, and a log, a folder of Parquet files and dead letters behind it."""

    @pipeline(
        source=Source(folder / "in", rules={"no number": "n IS NOT NULL", "large": "n < 1000"}),
        sink={
            "even": folder / "even",
            "parquet": Sink(folder / "parquet", format="parquet", partition_by="rest"),
        },
        dead_letters=folder / "bad",
        name="split",
    )
    def split(numbers: Any) -> Any:
        return {
            "even": numbers.where("n % 2 = 0"),
            "parquet": numbers.selectExpr("n", "n % 3 AS rest"),
        }

    return split


def files_of(folder: Path) -> list[int]:
    return sorted(parquet.read_table(folder)["n"].to_pylist())


def test_each_sink_gets_each_row_once_over_runs_and_repeated_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    split = three_ways(tmp_path)
    send(tmp_path / "in", [*range(10), None, 1000])
    done = split.run(spark, once=True)
    assert {sink: (one.batches, one.rows, one.lag) for sink, one in done.items()} == dict.fromkeys(
        ("even", "parquet", "dead_letters"), (1, 12, 0)
    )
    assert done["even"].written == 5

    state = tmp_path / "even.state" / "split"
    for sink in split.sinks:
        forget_last_commit(str(state / sink))
    send(tmp_path / "in", range(10, 20))
    split.run(spark, once=True)
    assert numbers_of(tmp_path / "even") == list(range(0, 20, 2))
    assert files_of(tmp_path / "parquet") == list(range(20))
    letters = rows_of(tmp_path / "bad")
    assert [(one["pipeline"], one["source"], one["source_seq"]) for one in letters] == [
        ("split", "numbers", 11),
        ("split", "numbers", 12),
    ]
    assert [one["reason"] for one in letters] == ["no number; large", "large"]
    assert [json.loads(one["row"])["n"] for one in letters] == [None, 1000]

    # A file that a task left when it was killed is removed, and those that count are not.
    part = next((tmp_path / "parquet").rglob("part-*.parquet"))
    shutil.copy(part, part.with_name(part.name.replace("part-00000", "part-00007")))
    assert len(files_of(tmp_path / "parquet")) > 20
    assert sweep(split.sinks["parquet"]) == 1
    assert files_of(tmp_path / "parquet") == list(range(20))

    shutil.rmtree(state)
    with pytest.raises(tm.TransactionRewound, match=r"batches up to 1 .* knows of none"):
        split.run(spark, once=True)
    assert files_of(tmp_path / "parquet") == list(range(20))


def test_a_state_may_be_moved_and_without_it_nothing_is_written_a_second_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    @pipeline(source=tmp_path / "in", sink=tmp_path / "out", state=tmp_path / "one")
    def copy(numbers: Any) -> Any:
        return numbers

    send(tmp_path / "in", range(5))
    copy.run(spark, once=True)
    forget_last_commit(str(tmp_path / "one" / "copy" / "output"))
    (tmp_path / "one").rename(tmp_path / "two")
    send(tmp_path / "in", range(5, 10))
    copy.run(spark, once=True, state=tmp_path / "two")
    assert numbers_of(tmp_path / "out") == list(range(10))
    with pytest.raises(tm.TransactionRewound, match="pipeline copy, sink output: number 0 of"):
        copy.run(spark, once=True)
    assert numbers_of(tmp_path / "out") == list(range(10))


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_state_that_was_deleted_after_its_first_run_skips_nothing_in_silence(
    spark: SparkSession, tmp_path: Path, is_batch: bool
) -> None:
    @pipeline(source=tmp_path / "in", sink=tmp_path / "out")
    def copy(numbers: Any) -> Any:
        return numbers

    send(tmp_path / "in", range(5))
    copy.run(spark, once=not is_batch, batch=is_batch)
    shutil.rmtree(tmp_path / "out.state")
    send(tmp_path / "in", range(5, 10))
    with pytest.raises(tm.TransactionRewound, match="another run"):
        copy.run(spark, once=not is_batch, batch=is_batch)
    assert numbers_of(tmp_path / "out") == list(range(5))


def test_a_state_that_is_older_than_its_sink_skips_nothing_in_silence(
    spark: SparkSession, tmp_path: Path
) -> None:
    @pipeline(source=tmp_path / "in", sink=tmp_path / "out", state=tmp_path / "state")
    def copy(numbers: Any) -> Any:
        return numbers

    send(tmp_path / "in", range(5))
    copy.run(spark, once=True)
    shutil.copytree(tmp_path / "state", tmp_path / "backup")
    send(tmp_path / "in", range(5, 10))
    copy.run(spark, once=True)
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "backup").rename(tmp_path / "state")
    send(tmp_path / "in", range(10, 15))  # They would be in the batch that has been before.
    with pytest.raises(tm.TransactionRewound, match=r"up to 1 .* of those up to 0: bring it back"):
        copy.run(spark, once=True)
    assert numbers_of(tmp_path / "out") == list(range(10))


def test_a_state_is_not_used_for_another_source(spark: SparkSession, tmp_path: Path) -> None:
    def copy_of(source: Path) -> Pipeline:
        @pipeline(source=source, sink=tmp_path / "out", name="copy")
        def copy(numbers: Any) -> Any:
            return numbers

        return copy

    send(tmp_path / "one", range(5))
    send(tmp_path / "other", range(100, 110))
    copy_of(tmp_path / "one").run(spark, once=True)
    with pytest.raises(tm.InvalidPipeline, match="would be left out that were never read"):
        copy_of(tmp_path / "other").run(spark, once=True)
    assert numbers_of(tmp_path / "out") == list(range(5))
    (tmp_path / "one").rename(tmp_path / "moved")
    send(tmp_path / "moved", range(5, 10))
    copy_of(tmp_path / "moved").run(spark, once=True)
    assert numbers_of(tmp_path / "out") == list(range(10))


def test_a_source_may_be_read_twice(spark: SparkSession, tmp_path: Path) -> None:
    place = tmp_path / "in"

    @pipeline(source={"one": place, "other": place}, sink=tmp_path / "out")
    def both(one: Any, other: Any) -> Any:
        return one.select("n").unionAll(other.selectExpr("-n AS n"))

    expected: list[int] = []
    for start in (1, 6):
        send(place, range(start, start + 5))
        both.run(spark, once=True)
        expected += [*range(start, start + 5), *(-n for n in range(start, start + 5))]
        assert sorted(numbers_of(tmp_path / "out")) == sorted(expected)


def test_dead_letters_have_times_to_the_microsecond(spark: SparkSession) -> None:
    at = "TIMESTAMP '2026-01-01 00:00:00.123456 UTC' AS at"
    wall = "TIMESTAMP_NTZ '2026-01-01 00:00:00.654321' AS wall"
    (letter,) = reject(spark.range(1).selectExpr("id", at, wall), "no use").collect()
    row = json.loads(letter["row"])
    assert (row["at"][-8:], row["wall"]) == (".123456Z", "2026-01-01T00:00:00.654321")


def test_what_java_says_of_a_place_is_told_as_an_error_of_ours(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = Sink("nothere://x/y", format="parquet")

    @pipeline(source=tmp_path / "in", sink=sink, state=tmp_path / "state")
    def copy(numbers: Any) -> Any:
        return numbers

    send(tmp_path / "in", range(1))
    with pytest.raises(tm.PipelineFailed, match=r"pipeline copy, sink output: .*nothere"):
        copy.run(spark, once=True)


def test_a_continuous_run_follows_its_sources_and_ends_between_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    @pipeline(
        source={"left": tmp_path / "left", "right": tmp_path / "right"},
        sink=Sink(tmp_path / "out", kind="queue"),
    )
    def both(left: Any, right: Any) -> Any:
        return left.unionByName(right.drop("key")).selectExpr("n", "-n AS key")

    send(tmp_path / "left", range(3))
    with tm.PriorityQueue(tmp_path / "right", schema=NUMBERS) as queue:
        queue.push(pa.table({"key": [2, 1, 3], "n": [10, 11, 12]}))
    with both.start(spark, every_s=0.1) as run:
        while run.progress()["output"].rows < 6:
            assert not run.wait(0.1)
        with pytest.raises(tm.Locked, match="is open in another handle in this process"):
            both.start(spark)
        send(tmp_path / "left", range(3, 6))
        while run.progress()["output"].rows < 9:
            assert not run.wait(0.1)
        run.stop()
        assert run.wait()
    with tm.PriorityQueue(tmp_path / "out") as queue:
        assert [key for key, _ in queue.pop(-1).rows()] == [
            -n for n in (12, 11, 10, *range(5, -1, -1))
        ]
    with tm.Log(tmp_path / "left") as log:
        assert set(log.consumers()) == {"both.output"}


def test_a_batch_writes_everything_once_for_each_run(spark: SparkSession, tmp_path: Path) -> None:
    @pipeline(
        source=Source(tmp_path / "in", maxOffsetsPerTrigger=1),
        sink={
            "sums": tmp_path / "sums",
            "again": tmp_path / "again",
            "files": Sink(tmp_path / "files", format="parquet"),
        },
        dead_letters=tmp_path / "bad",
    )
    def total(numbers: Any) -> Any:
        sums = numbers.groupBy().sum("n").withColumnRenamed("sum(n)", "n")
        bad = reject(numbers.where("n = 2"), "two", source="numbers")
        return {"sums": sums, "again": sums, "files": sums, "dead_letters": bad}

    send(tmp_path / "in", range(5))
    done = total.run(spark, batch=True)
    assert done["sums"].last_batch == 0
    state = tmp_path / "sums.state" / "total" / "batch"
    # As if the run had been killed behind its third sink, before that was noted.
    killed = {"number": 0, "begun": ["sums", "again", "files"], "done": ["sums"]}
    state.write_text(json.dumps(killed))
    total.run(spark, batch=True)
    assert numbers_of(tmp_path / "sums") == numbers_of(tmp_path / "again") == [10]
    assert files_of(tmp_path / "files") == [10]
    assert [one["reason"] for one in rows_of(tmp_path / "bad")] == ["two"]
    with pytest.raises(tm.InvalidPipeline, match="holds files, which are not replaced unasked"):
        total.run(spark, batch=True)
    assert numbers_of(tmp_path / "sums") == [10]
    total.sinks["files"] = Sink(tmp_path / "files", format="parquet", mode="overwrite")
    assert total.run(spark, batch=True)["sums"].last_batch == 1
    assert numbers_of(tmp_path / "sums") == numbers_of(tmp_path / "again") == [10, 10]
    assert files_of(tmp_path / "files") == [10]
    state.write_text("nonsense")
    with pytest.raises(tm.InvalidPipeline, match="does not tell the number"):
        total.run(spark, batch=True)


def test_a_query_that_spark_had_no_time_for_is_started_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_TOO_BUSY", "too busy, for once")
    marker = str(tmp_path / "marker")

    def once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not os.path.exists(marker):
                open(marker, "w").close()
                raise RuntimeError("too busy, for once")
            yield batch

    @pipeline(source=tmp_path / "in", sink=tmp_path / "out")
    def copy(numbers: Any) -> Any:
        return numbers.select("n").mapInArrow(once, "n long")

    send(tmp_path / "in", range(5))
    assert copy.run(spark, once=True)["output"].rows == 5
    assert os.path.exists(marker)
    assert numbers_of(tmp_path / "out") == list(range(5))


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        (lambda rows: 7, tm.InvalidPipeline, "returned a int, not a DataFrame"),
        (lambda rows: {"output": 7}, tm.InvalidPipeline, "returned a int for output"),
        (lambda rows: {"other": rows}, tm.InvalidPipeline, "'other', which is none of its sinks"),
        (lambda rows: {}, tm.InvalidPipeline, "returned nothing for its sinks output"),
        (
            lambda rows: {"output": rows, "dead_letters": rows},
            tm.InvalidPipeline,
            "give dead_letters=",
        ),
        (lambda rows: rows["none"], tm.PipelineFailed, "its function failed: "),
        (lambda rows: 1 / 0, tm.PipelineFailed, "its function failed: ZeroDivisionError"),
        (lambda rows: sys.exit(0), tm.PipelineFailed, "its function failed: SystemExit"),
        (
            lambda rows: rows.withColumnRenamed("n", "key"),
            tm.SchemaMismatch,
            "pipeline wrong, sink output: a log has no keys: drop the column 'key'",
        ),
        (
            lambda rows: rows.groupBy("n").count(),
            tm.PipelineFailed,
            "watermark",
        ),
        (
            lambda rows: rows.selectExpr("cast(raise_error('broken') AS long) AS n"),
            tm.PipelineFailed,
            "broken",
        ),
    ],
)
def test_what_is_wrong_with_a_function_is_said_with_its_name(
    spark: SparkSession, tmp_path: Path, function: Any, error: type[Exception], message: str
) -> None:
    send(tmp_path / "in", range(3))
    function.__name__ = "wrong"
    wrong = pipeline(source=tmp_path / "in", sink=tmp_path / "out")(function)
    with pytest.raises(error, match=message) as raised:
        wrong.run(spark, once=True)
    assert "pipeline wrong" in str(raised.value)
    assert "\n" not in str(raised.value)
    # Nobody is kept out by what failed.
    assert not spark.streams.active
    assert State.of(wrong, None, is_remote=False).runner() is None


def test_a_missing_source_and_a_bad_rule_are_told(spark: SparkSession, tmp_path: Path) -> None:
    made = pipeline(
        source=tmp_path / "in", sink=tmp_path / "out", dead_letters=tmp_path / "bad", name="copy"
    )
    with pytest.raises(tm.NotAQueue, match=r"pipeline copy: .*/in holds no queue"):
        made(same).run(spark, once=True)
    send(tmp_path / "in", range(3))
    with pytest.raises(tm.InvalidPipeline, match="a place for dead letters and writes none"):
        made(same).run(spark, once=True)
    with pytest.raises(tm.InvalidPipeline, match="make them with reject"):
        made(lambda rows: {"output": rows, "dead_letters": rows}).run(spark, once=True)
    ruled = pipeline(
        source=tmp_path / "in",
        sink=tmp_path / "out",
        dead_letters=tmp_path / "bad",
        rules={"x": "x > 0"},
        name="copy",
    )
    with pytest.raises(tm.PipelineFailed, match=r"the rules of rows failed: .*`x`"):
        ruled(same).run(spark, once=True)
    assert not (tmp_path / "out").exists()


def test_a_pipeline_is_tried_out_over_rows(spark: SparkSession, tmp_path: Path) -> None:
    @pipeline(
        source={"jobs": tmp_path / "jobs", "texts": tmp_path / "texts"},
        sink={"urgent": Sink(tmp_path / "urgent", kind="queue"), "all": tmp_path / "all"},
    )
    def sorting(jobs: Any, texts: Any) -> Any:
        return {"urgent": jobs.where("key < 10"), "all": texts.selectExpr("string(value) AS t")}

    rows = {"jobs": [{"key": 20, "n": 1}, {"key": 2, "n": 2}], "texts": [b"a", b"b"]}
    tried = try_out(sorting, rows, spark=spark, once=True)
    assert tried.sinks == {"urgent": [{"key": 2, "n": 2}], "all": [{"t": "a"}, {"t": "b"}]}
    assert tried.dead_letters == []
    with pytest.raises(tm.InvalidInput, match="several sinks: urgent, all"):
        _ = tried.rows
    with pytest.raises(tm.InvalidInput, match="rows are given for jobs, and the sources of"):
        try_out(sorting, [{"key": 1}], spark=spark)
    assert not list(tmp_path.iterdir())


def test_a_folder_and_a_checkpoint_that_are_not_of_one_run_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    @pipeline(source=tmp_path / "in", sink=Sink(tmp_path / "out", format="parquet"), name="files")
    def files(numbers: Any) -> Any:
        return numbers

    send(tmp_path / "in", range(3))
    (tmp_path / "out").mkdir()
    parquet.write_table(pa.table({"n": [7]}), tmp_path / "out" / "mine.parquet")
    with pytest.raises(tm.InvalidPipeline, match="that no pipeline wrote"):
        files.run(spark, once=True)
    shutil.rmtree(tmp_path / "out")
    files.run(spark, once=True)
    shutil.rmtree(tmp_path / "out")
    with pytest.raises(tm.NotAQueue, match="now nothing is there"):
        files.run(spark, once=True)


def test_a_pipeline_to_servers_alone_needs_a_folder_for_its_state(spark: SparkSession) -> None:
    made = pipeline(source="in/", sink="mysql://app@localhost/shop/orders", name="copy")
    with pytest.raises(tm.InvalidPipeline, match="name a folder, state="):
        made(same).run(spark, once=True)


def test_triggers_that_exclude_each_other_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    made = pipeline(source=tmp_path / "in", sink=tmp_path / "out")(same)
    with pytest.raises(tm.InvalidPipeline, match="once or every_s"):
        made.run(spark, once=True, every_s=5)
    with pytest.raises(tm.InvalidPipeline, match="by itself"):
        made.run(spark, batch=True, once=True)
    with pytest.raises(tm.InvalidPipeline, match="from 0 on"):
        made.run(spark, every_s=-1)


def same(rows: Any) -> Any:
    return rows
