"""A hundred queues become one log in the order of their keys.

The peer is what one would write without us: Spark reads the same items from a hundred folders of
Parquet files, sorts them, and writes Parquet. It works in the JVM, syncs nothing, and repeats or
loses items when it dies at the wrong moment.

Both once with as many items as a hundred devices gather in days, and in rounds with a tenth.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import tidemill as tm
from benchmarks import data, local_spark
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS, _PEER = "merge", "Spark sorts Parquet"
_SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.binary())])
_PUSHED_ROWS = 10_000
_LATE_NS = 20_000_000_000  # An item arrives up to so long after it was taken
_STEP_NS = 1_000_000  # … and there is one in so long
_START_NS = 1_767_225_600_000_000_000


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark merge", None, "items/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    folders, items = (3, 10**4) if settings.quick else (100, 10**6)
    results = []
    for each, rounds in ((items // 10, settings.rounds), (items, 1)):
        with tempfile.TemporaryDirectory(dir=settings.folder) as name:
            parquet = Path(name) / "parquet"
            for device in range(folders):
                _fill_parquet(parquet / f"device-{device:03}", each)
            contestants: list[Contestant] = [
                Merge(spark, Path(name), folders, each),
                Sort(spark, Path(name), parquet, folders * each),
            ]
            medians = interleave(f"spark merge, {each:,} items each", contestants, rounds)
        results.append(
            Result(
                f"spark merge, {folders} queues of {each:,}",
                1 / medians[_OURS]["merge"],
                "items/s",
                1 / medians[_PEER]["merge"],
                _PEER,
                note="" if rounds == settings.rounds else f"{rounds} round",
                conditions={
                    **local_spark.CONDITIONS,
                    "operation": "items of 40 bytes up to 20 s late, moved from the queues to a "
                    "log, transactions of 1 GiB; the peer sorts by key and writes Parquet",
                },
            )
        )
    return results


class Merge:
    """Fills queues, and merges them."""

    name = _OURS

    def __init__(self, spark: SparkSession, folder: Path, folders: int, items: int) -> None:
        self._spark = spark
        self._folder = folder
        self._folders = folders
        self._items = items
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        from tidemill.spark import merge

        folder = self._folder / f"queues-{next(self._turns)}"
        paths = [folder / f"device-{device:03}" for device in range(self._folders)]
        for path in paths:
            with tm.PriorityQueue(path, sync="none") as queue:
                for batch in _batches(self._items):
                    queue.push(batch)
        start = time.perf_counter()
        found = merge(self._spark, paths, folder / "log")
        seconds = time.perf_counter() - start
        total = self._folders * self._items
        if found.rows != total:
            raise RuntimeError(f"{found.rows} items were merged, not {total}")
        shutil.rmtree(folder)
        return {"merge": seconds / total}

    def close(self) -> None:
        pass


class Sort:
    """Sorts the same items with Spark alone."""

    name = _PEER

    def __init__(self, spark: SparkSession, folder: Path, source: Path, items: int) -> None:
        self._spark = spark
        self._folder = folder
        self._source = source
        self._items = items
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        target = self._folder / f"sorted-{next(self._turns)}"
        start = time.perf_counter()
        rows = self._spark.read.parquet(f"{self._source}/*").orderBy("key")
        rows.write.parquet(str(target))
        seconds = time.perf_counter() - start
        found = self._spark.read.parquet(str(target)).count()
        if found != self._items:
            raise RuntimeError(f"{found} items were sorted, not {self._items}")
        shutil.rmtree(target)
        return {"merge": seconds / self._items}

    def close(self) -> None:
        pass


def _fill_parquet(folder: Path, items: int) -> None:
    folder.mkdir(parents=True)
    with pq.ParquetWriter(folder / "items.parquet", _SCHEMA) as writer:
        for batch in _batches(items):
            writer.write_batch(batch)


def _batches(items: int) -> Iterator[pa.RecordBatch]:
    """What one device pushes: in the order of time, but for what is late."""
    for start in range(0, items, _PUSHED_ROWS):
        taken = np.arange(start, min(start + _PUSHED_ROWS, items)) * _STEP_NS
        yield data.batch(_START_NS + taken - data.delays(len(taken), _LATE_NS))
