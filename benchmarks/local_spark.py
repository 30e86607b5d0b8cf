"""Spark on two cores of this machine, and the rows that it reads and writes there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

import tidemill as tm
from benchmarks import data
from benchmarks.settings import VALUE_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CORES = 2
ROWS_PER_SEND = 10_000
PAYLOAD = pa.schema([("number", pa.int64()), ("value", pa.binary())])
PAYLOAD_DDL = "number BIGINT, value BINARY"
CONDITIONS = {
    "spark": f"local[{CORES}], in one session that tidemill.spark.session() made",
    "rows": f"an int64 and {VALUE_BYTES} random bytes; sent {ROWS_PER_SEND:,} at a time",
}


def missing() -> str | None:
    """Why Spark cannot be measured here; None if it can."""
    return None if find_spec("pyspark") else "PySpark is not installed"


@contextmanager
def running(folder: Path) -> Iterator[SparkSession]:
    """A session as users get it, whose temporary files are on the disk that is measured."""
    from benchmarks.peers.spark_ceilings import Ceiling, Ready
    from tidemill.spark import session

    spark = session(
        "benchmarks",
        master=f"local[{CORES}]",
        config={"spark.local.dir": str(folder), "spark.sql.warehouse.dir": str(folder)},
    )
    spark.dataSource.register(Ceiling)
    spark.dataSource.register(Ready)
    try:
        yield spark
    finally:
        spark.stop()


def fill_log(address: str, rows: int) -> int:
    """A log with so many rows; returns the sum of their numbers."""
    total = 0
    with tm.Log(address, schema=PAYLOAD) as log, log.publisher() as out:
        for batch in _batches(rows):
            total += pc.sum(batch.column("number")).as_py()
            out.send_soon(batch)
        out.flush()
    return total


def fill_queue(path: Path, rows: int) -> int:
    """A queue ordered by the numbers, of which nothing was popped; returns their sum."""
    total = 0
    with tm.PriorityQueue(path, schema=PAYLOAD, sync="none") as queue:
        for batch in _batches(rows):
            total += pc.sum(batch.column("number")).as_py()
            queue.push(batch, key="number")
        queue.sync()
    return total


def ours(spark: SparkSession, address: str | Path) -> DataFrame:
    return spark.read.format("tidemill").load(str(address))


def to_parquet(rows: DataFrame, folder: Path) -> DataFrame:
    """The payload of our rows in Parquet files as Spark writes them."""
    rows.select("number", "value").write.parquet(str(folder))
    return rows.sparkSession.read.parquet(str(folder))


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Random numbers, all within one bucket of a queue, and random bytes."""
    for _ in range(rows // ROWS_PER_SEND):
        yield data.scattered(1, ROWS_PER_SEND).rename_columns(PAYLOAD.names)
