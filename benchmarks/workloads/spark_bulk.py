"""Spark reads and writes the archive of a log by itself, without Python in between.

Scans: the rows of an archive through `tidemill.spark.read`, against the same columns of the same
rows in plain Parquet files that Spark wrote, with the same codec. Both count, and add up a typed
column; planning is part of it.

Writes: `tidemill.spark.write`, with its transaction, against Spark writing the same rows to a
folder, with the same codec. Ours also reads each file back for its digest, syncs it, and publishes
it; plain Parquet is synced by nobody.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import tidemill as tm
from benchmarks import local_spark
from benchmarks.local_spark import PAYLOAD, fill_log, ours
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, Medians, interleave
from benchmarks.settings import Settings
from benchmarks.workloads.spark_source import Scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCAN, _PLAIN = "archive of a log, read natively", "Spark's Parquet reader"
_WRITE, _WRITER = "into the archive of a log", "Spark's Parquet writer"
_SCAN_TARGET, _WRITE_TARGET = Target("at least", 0.9), Target("at least", 0.8)


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark bulk", None, "rows/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    rows = 4 * 10**4 if settings.quick else 10**7
    with tempfile.TemporaryDirectory(dir=settings.folder) as name:
        folder = Path(name)
        scans = interleave("spark bulk, scans", _scans(spark, folder, rows), settings.rounds)
        source = spark.read.parquet(str(folder / "plain")).limit(rows // 2).select(*PAYLOAD.names)
        source.write.option("compression", "zstd").parquet(str(folder / "source"))
        source = spark.read.parquet(str(folder / "source"))
        contestants: list[Contestant] = [
            Bulk(source, rows // 2, folder / "bulk"),
            Plain(source, rows // 2, folder / "written"),
        ]
        writes = interleave("spark bulk, writes", contestants, settings.rounds)
    return _judge(scans, writes, rows)


def _scans(spark: SparkSession, folder: Path, rows: int) -> list[Contestant]:
    from tidemill.spark import read

    log, plain = folder / "log", folder / "plain"
    total = fill_log(str(log), rows)
    with tm.Log(log) as archived:
        archived.archive(folder / "archive")
    stored = ours(spark, log).select("time", *PAYLOAD.names)
    stored.write.option("compression", "zstd").parquet(str(plain))
    return [
        Scan(_SCAN, lambda: read(spark, log), rows, total),
        Scan(_PLAIN, lambda: spark.read.parquet(str(plain)), rows, total),
    ]


class Bulk:
    """Writes all rows to a new log each turn, as one transaction."""

    name = _WRITE

    def __init__(self, source: DataFrame, rows: int, folder: Path) -> None:
        self._source = source
        self._rows = rows
        self._folder = folder
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        from tidemill.spark import write

        place = self._folder / str(next(self._turns))
        with tm.Log(place / "log", schema=PAYLOAD) as log:
            log.archive(place / "archive")
        start = time.perf_counter()
        receipt = write(self._source, place / "log", txn_app_id="bench", txn_version=1)
        seconds = time.perf_counter() - start
        if receipt.count != self._rows:
            raise RuntimeError(f"{receipt} instead of {self._rows} rows")
        shutil.rmtree(place)
        return {"write": seconds / self._rows}

    def close(self) -> None:
        pass


class Plain(Bulk):
    """Has Spark write the same rows to a new folder each turn."""

    name = _WRITER

    def turn(self) -> Mapping[str, float]:
        place = self._folder / str(next(self._turns))
        start = time.perf_counter()
        self._source.write.option("compression", "zstd").parquet(str(place))
        seconds = time.perf_counter() - start
        shutil.rmtree(place)
        return {"write": seconds / self._rows}


def _judge(scans: Medians, writes: Medians, rows: int) -> list[Result]:
    conditions = {**local_spark.CONDITIONS, "codec": "zstd"}
    found = [
        Result(
            f"spark bulk, {_SCAN}: {metric}",
            1 / scans[_SCAN][metric],
            "rows/s",
            1 / scans[_PLAIN][metric],
            _PLAIN,
            _SCAN_TARGET,
            conditions={**conditions, "operation": f"{rows:,} rows, planning included"},
        )
        for metric in ("count", "sum")
    ]
    found.append(
        Result(
            f"spark bulk, {_WRITE}",
            1 / writes[_WRITE]["write"],
            "rows/s",
            1 / writes[_WRITER]["write"],
            _WRITER,
            _WRITE_TARGET,
            conditions={
                **conditions,
                "operation": f"{rows // 2:,} rows as one transaction, read from Parquet",
            },
        )
    )
    return found
