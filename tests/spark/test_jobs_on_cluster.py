"""The jobs on a real cluster, one after the other: edge folders to a log, and on to its archive."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tidemill.spark import archive, compact, merge, profile, read, replay

pytestmark = pytest.mark.slow

QUEUES = 3
ITEMS = 20_000  # in each queue


def test_queues_are_merged_replayed_archived_compacted_and_profiled(
    cluster_spark: SparkSession, tmp_path: Path
) -> None:
    folders = [tmp_path / f"edge-{number}" for number in range(QUEUES)]
    schema = pa.schema([("n", pa.int64())])
    for number, folder in enumerate(folders):
        with tm.PriorityQueue(folder, schema=schema) as queue:
            for start in range(0, ITEMS, 1_000):
                keys = (np.arange(start, start + 1_000) * 7_919) % ITEMS * QUEUES + number
                queue.push(pa.table({"key": keys, "n": keys}))
    rows = QUEUES * ITEMS

    log = tmp_path / "log"
    merged = merge(cluster_spark, folders, log)
    assert (merged.rows, merged.last) == (rows, rows)
    with tm.Log(log) as opened:
        assert np.array_equal(
            opened.read(rows_max=rows).to_arrow()["n"].to_numpy(), np.arange(rows)
        )

    again = tmp_path / "again"
    replayed = replay(cluster_spark, log, again, seqs=(1_001, 2_000), where="n % 2 = 0")
    assert replayed.rows == 500
    with tm.Log(again) as opened:
        numbers = opened.read(rows_max=rows).to_arrow()["n"].to_numpy()
        assert np.array_equal(numbers, np.arange(1_000, 2_000, 2))

    old = tmp_path / "old"
    for before in (rows // 3, 2 * rows // 3, rows + 1):
        archive(cluster_spark, log, old, before=before)
    assert len(list((old / "segments").iterdir())) == 3
    compacted = compact(cluster_spark, log)
    assert (compacted.segments_before, compacted.segments_after) == (3, 1)

    found = profile(cluster_spark, old)
    assert (found.rows, found.duplicates) == (rows, 0)
    total = read(cluster_spark, log).selectExpr("count(*)", "sum(n)", "max(seq)").first()
    assert total == (rows, rows * (rows - 1) // 2, rows)
