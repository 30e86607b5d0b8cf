"""Spark reads a log and a queue: counts the rows, and adds up a typed column.

Spark asks a Python source for all columns, whatever the query needs, and each row crosses from
Python to the JVM. What that costs is seen by a source that yields the same batch again and again:
same columns, as many tasks, batches as large. The target is against that. Spark's own readers run
in the JVM, and read the columns that are needed: they show what a user gives up or gains.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import local_spark
from benchmarks.local_spark import ROWS_PER_SEND, fill_log, fill_queue, ours
from benchmarks.result import Result, Target
from benchmarks.rounds import Medians, interleave
from benchmarks.settings import Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LOG, _QUEUE, _ON_SERVER = "log in a folder", "priority queue", "log on MariaDB"
_PARQUET, _JSON = "Spark's Parquet reader", "Spark's JSON reader"
_METRICS = ("count", "sum")
_TARGET = Target("at least", 0.85)


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark source", None, "rows/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    rows = 4 * 10**4 if settings.quick else 10**7
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder)))
        contestants = _contestants(spark, folder, rows)
        if MariaDB.missing() is None:
            started = stack.enter_context(server(settings))
            address = started.url("bench", "log")
            total = fill_log(address, rows)
            contestants.append(Scan(_ON_SERVER, lambda: ours(spark, address), rows, total))
        medians = interleave("spark source", contestants, settings.rounds)
    return _judge(medians, rows)


class Scan:
    """Reads all rows, once for each metric; planning is part of it."""

    def __init__(
        self,
        name: str,
        read: Callable[[], DataFrame],
        rows: int,
        total: int | None,  # of the numbers; None: they are not known
    ) -> None:
        self.name = name
        self._read = read
        self._rows = rows
        self._total = total

    def turn(self) -> Mapping[str, float]:
        start = time.perf_counter()
        rows = self._read().count()
        counted = time.perf_counter()
        row = self._read().selectExpr("sum(number) AS total").first()
        added = time.perf_counter()
        if rows != self._rows or row is None or row.total != (self._total or row.total):
            raise RuntimeError(f"{self.name} gave {rows} rows, {row}, not {self._rows}")
        return {"count": (counted - start) / rows, "sum": (added - counted) / rows}

    def close(self) -> None:
        pass


def _contestants(spark: SparkSession, folder: Path, rows: int) -> list[Scan]:
    log, queue = folder / "log", folder / "queue"
    total = fill_log(str(log), rows)
    local_spark.to_parquet(ours(spark, log), folder / "parquet")
    spark.read.parquet(str(folder / "parquet")).write.json(str(folder / "json"))
    schema = local_spark.PAYLOAD_DDL
    return [
        Scan(_LOG, lambda: ours(spark, log), rows, total),
        Scan(_ceiling(_LOG), _constant(ours(spark, log), rows), rows, None),
        Scan(_QUEUE, lambda: ours(spark, queue), rows, fill_queue(queue, rows)),
        Scan(_ceiling(_QUEUE), _constant(ours(spark, queue), rows), rows, None),
        Scan(_PARQUET, lambda: spark.read.parquet(str(folder / "parquet")), rows, total),
        Scan(_JSON, lambda: spark.read.schema(schema).json(str(folder / "json")), rows, total),
    ]


def _constant(like: DataFrame, rows: int) -> Callable[[], DataFrame]:
    """Reads as many rows of the same columns, from as many tasks, in batches as large."""
    from tidemill.spark.source.chunks import CHUNK_ROWS

    options = {
        "rows": rows,
        "tasks": like.rdd.getNumPartitions(),
        "batchRows": -(-CHUNK_ROWS // ROWS_PER_SEND) * ROWS_PER_SEND,
    }
    reader = like.sparkSession.read.format("ceiling").schema(like.schema)
    return lambda: reader.options(**options).load()


def _ceiling(name: str) -> str:
    return f"constant batches like those of a {name}"


def _judge(medians: Medians, rows: int) -> list[Result]:
    pairs = [
        (_LOG, _ceiling(_LOG), _TARGET),
        (_QUEUE, _ceiling(_QUEUE), _TARGET),
        (_LOG, _PARQUET, None),
        (_LOG, _JSON, None),
    ]
    results = []
    if _ON_SERVER in medians:
        pairs.append((_ON_SERVER, _ceiling(_LOG), None))
    else:
        note = MariaDB.missing() or ""
        results = [Result(f"spark source, {_ON_SERVER}", None, "rows/s", note=note)]
    conditions = {**local_spark.CONDITIONS, "operation": f"{rows:,} rows, planning included"}
    return [
        Result(
            f"spark source, {name}: {metric}",
            1 / medians[name][metric],
            "rows/s",
            1 / medians[peer][metric],
            peer,
            target,
            conditions=conditions,
        )
        for metric in _METRICS
        for name, peer, target in pairs
    ] + results
