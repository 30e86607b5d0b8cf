"""`tidemill.spark.write`: a DataFrame into the archive of a log, all at once."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from tidemill.files.queue.receipt import Receipt


def write(
    rows: DataFrame,
    url: str | os.PathLike[str],
    *,
    txn_app_id: str | None = None,  # with a number: the write is there once, however often it runs
    txn_version: int | None = None,
    merge_schema: bool = False,  # whether columns that the log lacks are added to it
) -> Receipt:
    """Write a DataFrame to a log that has an archive in a folder, as fast as Spark writes Parquet.

    All rows become readable at once, behind those that are there, in the order of Spark's
    partitions. The publisher of the log is fenced, and its hot rows are archived before.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import read, session, write
    >>> folder = tempfile.mkdtemp()
    >>> with tm.Log(f"{folder}/log") as log:
    ...     done = log.archive(f"{folder}/archive")
    >>> spark = session(master="local[1]")
    >>> rows = spark.createDataFrame([(b"a",), (b"b",)], "value BINARY").coalesce(1)
    >>> write(rows, f"{folder}/log", txn_app_id="load", txn_version=1)
    Receipt(first=1, last=2, count=2, durability='archived')
    >>> write(rows, f"{folder}/log", txn_app_id="load", txn_version=1).first  # nothing new
    1
    >>> read(spark, f"{folder}/log").count()
    2
    >>> spark.stop()
    """
    # Every executor imports this module, and none writes this way.
    from tidemill.spark.bulk_write import write_rows  # noqa: PLC0415

    return write_rows(
        rows,
        os.fspath(url),
        txn_app_id=txn_app_id,
        txn_version=txn_version,
        merge_schema=merge_schema,
    )
