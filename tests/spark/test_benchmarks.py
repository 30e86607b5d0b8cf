"""The benchmarks of Spark run, in the session of the tests; how fast anything is, no test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from benchmarks.peers import spark_ceilings
from benchmarks.result import Result
from benchmarks.settings import Settings
from benchmarks.workloads import (
    spark_bulk,
    spark_merge,
    spark_pipeline,
    spark_sink,
    spark_source,
    spark_streaming,
)
from tests.services.mariadb import MariaDB


@pytest.mark.slow
@pytest.mark.parametrize(
    ("measure", "targets"),
    [
        (spark_source.measure, 4),
        (spark_merge.measure, 0),
        (spark_pipeline.measure, 0),
        (spark_sink.measure, 2),
        (spark_streaming.measure, 0),
        (spark_bulk.measure, 3),
    ],
)
def test_a_quick_run_gives_a_figure_for_each_line(
    spark: SparkSession,
    measure: Callable[[SparkSession, Settings], list[Result]],
    targets: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Wherever the workers of this session were started, they need not find the benchmarks.
    cloudpickle.register_pickle_by_value(spark_ceilings)  # type: ignore[no-untyped-call]
    spark.dataSource.register(spark_ceilings.Ceiling)
    spark.dataSource.register(spark_ceilings.Ready)
    monkeypatch.setattr(MariaDB, "programs", ("no-such-server",))
    results = measure(spark, Settings(tmp_path, rounds=1, quick=True))
    for result in results:
        if result.ours is None:
            assert result.note == "no-such-server is not installed: make services"
            continue
        assert result.ours > 0
        assert result.peer
        assert result.ratio == pytest.approx(result.ours / result.peer)
    assert sum(result.target is not None for result in results) == targets
    assert list(tmp_path.iterdir()) == []
