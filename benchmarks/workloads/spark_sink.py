"""Spark writes to a log and a queue, each time as one transaction.

Each row crosses from the JVM to Python, whatever is done with it there; that is measured by a sink
that drops what it gets, and the target is against that. Ours encodes the rows, stages them durably,
and copies them into the journal when all tasks are done. Spark's own Parquet writer runs in the
JVM, and syncs nothing.

The rows come from Parquet files, which takes a small part of the time of each.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import tidemill as tm
from benchmarks import local_spark
from benchmarks.local_spark import ROWS_PER_SEND, fill_log, ours
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

_LOG, _QUEUE, _ON_SERVER = "log in a folder", "priority queue", "log on MariaDB"
_CEILING, _PARQUET = "a sink that drops its rows", "Spark's Parquet writer"
_TARGET = Target("at least", 0.7)


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark sink", None, "rows/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    rows = 4 * 10**4 if settings.quick else 5 * 10**6
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder)))
        source = _rows(spark, folder / "all", rows)
        contestants: list[Contestant] = [
            Write(_LOG, source, rows, folder, _log_rows),
            Write(_QUEUE, source, rows, folder, _queue_rows, kind="queue", key="number"),
            Write(_CEILING, source, rows, folder, lambda _: rows, form="ceiling"),
            Write(_PARQUET, source, rows, folder, _parquet_rows(spark), form="parquet"),
        ]
        if MariaDB.missing() is None:
            started = stack.enter_context(server(settings))
            # One transaction of the server holds all of them.
            few = _few(rows)
            source = _rows(spark, folder / "few", few)
            contestants.append(
                Write(_ON_SERVER, source, few, started.url("bench", "log"), _log_rows)
            )
        medians = interleave("spark sink", contestants, settings.rounds)
    figures = {name: 1 / found["write"] for name, found in medians.items()}
    return _judge(figures, rows)


class Write:
    """Writes all rows to a new place each turn."""

    def __init__(
        self,
        name: str,
        source: DataFrame,
        rows: int,
        place: Path | str,  # a folder to write below, or the beginning of an address
        rows_of: Callable[[str], int],  # what is there afterwards
        form: str = "tidemill",
        **options: str,
    ) -> None:
        self.name = name
        self._source = source
        self._rows = rows
        self._place = place
        self._rows_of = rows_of
        self._form = form
        self._options = options
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        name = f"{self._form}{next(self._turns)}"
        place = f"{self._place}/{name}" if isinstance(self._place, Path) else self._place + name
        writer: DataFrameWriter = self._source.write.format(self._form).options(**self._options)
        start = time.perf_counter()
        writer.mode("append").save(place)
        seconds = time.perf_counter() - start
        if (rows := self._rows_of(place)) != self._rows:
            raise RuntimeError(f"{self.name} holds {rows} rows, not {self._rows}")
        if isinstance(self._place, Path):
            shutil.rmtree(place, ignore_errors=True)
        return {"write": seconds / self._rows}

    def close(self) -> None:
        pass


def _few(rows: int) -> int:
    return max(rows // 10, ROWS_PER_SEND)


def _rows(spark: SparkSession, folder: Path, rows: int) -> DataFrame:
    fill_log(str(folder / "log"), rows)
    return local_spark.to_parquet(ours(spark, folder / "log"), folder / "parquet")


def _log_rows(address: str) -> int:
    with tm.Log(address) as log:
        return log.ends().next - 1


def _queue_rows(path: str) -> int:
    with tm.PriorityQueue(path) as queue:
        return len(queue)


def _parquet_rows(spark: SparkSession) -> Callable[[str], int]:
    return lambda path: spark.read.parquet(path).count()


def _judge(figures: dict[str, float], rows: int) -> list[Result]:
    pairs = [
        (_LOG, _CEILING, _TARGET),
        (_QUEUE, _CEILING, _TARGET),
        (_LOG, _PARQUET, None),
        (_QUEUE, _PARQUET, None),
        (_ON_SERVER, _CEILING, None),
    ]
    results = []
    for name, peer, target in pairs:
        written = _few(rows) if name == _ON_SERVER else rows
        operation = f"{written:,} rows as one transaction, read from Parquet"
        results.append(
            Result(
                f"spark sink, {name}",
                figures.get(name),
                "rows/s",
                figures[peer],
                peer,
                target,
                note="" if name in figures else MariaDB.missing() or "",
                conditions={**local_spark.CONDITIONS, "operation": operation},
            )
        )
    return results
