"""Streaming queries with Trigger.AvailableNow: rows/s, and what a micro-batch costs at least.

Many rows in one micro-batch show the rate, few rows in each of many what Spark and the source do
for every one. Rows go to Spark's noop, which drops them, and once from log to log. The peers are a
Python source of constant batches, and Spark's own source of Parquet files.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import local_spark
from benchmarks.local_spark import ROWS_PER_SEND, fill_log, fill_queue, ours
from benchmarks.result import Result
from benchmarks.rounds import Medians, interleave
from benchmarks.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

_LOG, _QUEUE, _COPY = "log in a folder", "arrivals of a priority queue", "from log to log"
_CEILING, _PARQUET = "constant batches", "Spark's Parquet files"


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark streaming", None, "rows/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    rows = 4 * 10**4 if settings.quick else 5 * 10**6
    batches = 2 if settings.quick else 20
    with tempfile.TemporaryDirectory(dir=settings.folder) as name:
        large = _contestants(spark, Path(name) / "large", rows, batches=1)
        rates = interleave("spark streaming, rows", large, settings.rounds)
        small = _contestants(spark, Path(name) / "small", batches * ROWS_PER_SEND, batches=batches)
        costs = interleave("spark streaming, micro-batches", small, settings.rounds)
    return _judge(rates, costs, rows, batches)


class Query:
    """Runs a new query to its end each turn, over the same rows."""

    def __init__(
        self,
        name: str,
        folder: Path,
        read: Callable[[int], DataFrame],  # given the number of the turn
        rows: int,
        batches: int,
        form: str = "noop",
    ) -> None:
        self.name = name
        self._folder = folder
        self._read = read
        self._rows = rows
        self._batches = batches
        self._form = form
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        turn = next(self._turns)
        folder = self._folder / f"{self.name}-{turn}"
        writer = self._read(turn).writeStream.format(self._form).trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        start = time.perf_counter()
        query = writer.start(str(folder / "out"))
        query.awaitTermination()
        seconds = time.perf_counter() - start
        found = [one for one in query.recentProgress if one.numInputRows]
        rows = sum(one.numInputRows for one in found)
        if rows != self._rows or len(found) != self._batches:
            raise RuntimeError(f"{self.name} gave {rows} rows in {len(found)} micro-batches")
        durations_ms = [one.durationMs["triggerExecution"] for one in found]
        return {"row": seconds / rows, "micro-batch": sum(durations_ms) / len(found) / 1e3}

    def close(self) -> None:
        pass


def _contestants(spark: SparkSession, folder: Path, rows: int, *, batches: int) -> list[Query]:
    log, queue = folder / "log", folder / "queue"
    folder.mkdir()
    fill_log(str(log), rows)
    fill_queue(queue, rows)
    batch = ours(spark, log)
    # A file for each of the micro-batches, which Spark reads by files.
    files = batch.repartition(batches) if batches > 1 else batch
    schema = local_spark.to_parquet(files, folder / "parquet").schema
    trigger_rows = rows // batches

    def tail(form: str, **options: str | int) -> DataStreamReader:
        return spark.readStream.format(form).options(**options)

    def read_log(_: int) -> DataFrame:
        reader = tail("tidemill", startingOffsets="earliest", maxOffsetsPerTrigger=trigger_rows)
        return reader.load(str(log))

    def read_queue(turn: int) -> DataFrame:
        reader = tail("tidemill", startingOffsets="earliest", maxOffsetsPerTrigger=trigger_rows)
        return reader.option("consumer", f"turn-{turn}").load(str(queue))

    def read_constant(_: int) -> DataFrame:
        tasks = batch.rdd.getNumPartitions() * batches
        reader = tail("ceiling", rows=rows, tasks=tasks, triggerRows=trigger_rows)
        return reader.option("batchRows", 7 * ROWS_PER_SEND).schema(batch.schema).load()

    def read_files(_: int) -> DataFrame:
        reader = tail("parquet", **({"maxFilesPerTrigger": 1} if batches > 1 else {}))
        return reader.schema(schema).load(str(folder / "parquet"))

    return [
        Query(_LOG, folder, read_log, rows, batches),
        Query(_QUEUE, folder, read_queue, rows, batches),
        Query(_COPY, folder, read_log, rows, batches, form="tidemill"),
        Query(_CEILING, folder, read_constant, rows, batches),
        Query(_PARQUET, folder, read_files, rows, batches),
    ]


def _judge(rates: Medians, costs: Medians, rows: int, batches: int) -> list[Result]:
    conditions = {**local_spark.CONDITIONS, "trigger": "AvailableNow, starting the query included"}
    operation = {"operation": f"{rows:,} rows in one micro-batch"}
    results = [
        Result(
            f"spark streaming, {name}",
            1 / rates[name]["row"],
            "rows/s",
            1 / rates[peer]["row"],
            peer,
            conditions={**conditions, **operation},
        )
        for name in (_LOG, _QUEUE, _COPY)
        for peer in (_CEILING, _PARQUET)
    ]
    operation = {"operation": f"{batches} micro-batches of {ROWS_PER_SEND:,} rows"}
    return results + [
        Result(
            f"spark streaming, {name}: a micro-batch of {ROWS_PER_SEND:,} rows",
            costs[name]["micro-batch"] * 1e3,
            "ms",
            costs[peer]["micro-batch"] * 1e3,
            peer,
            conditions={**conditions, **operation},
        )
        for name in (_LOG, _QUEUE, _COPY)
        for peer in (_CEILING, _PARQUET)
    ]
