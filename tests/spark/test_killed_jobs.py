"""Drivers of jobs that are killed by SIGKILL, in the middle of what they do: the next goes on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.spark.killed_job import STEP_ROWS
from tidemill.spark import archive, replay

ROOT = Path(__file__).resolve().parents[2]
ROWS = 100 * STEP_ROWS


@pytest.mark.slow
@pytest.mark.parametrize("what", ["replay", "archive"])
def test_a_job_that_is_killed_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, what: str
) -> None:
    log, place = tmp_path / "log", tmp_path / "place"
    schema = pa.schema([("n", pa.int64())])
    with tm.Log(str(log), schema=schema) as opened, opened.publisher() as out:
        for start in range(0, ROWS, STEP_ROWS):
            out.send(pa.table({"n": np.arange(start, start + STEP_ROWS)}))
    arguments = [sys.executable, "-m", "tests.spark.killed_job", what, str(log), str(place)]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        steps = [driver.stdout.readline() for _ in range(3)]
        driver.kill()
    assert steps == ["step\n"] * 3
    if what == "replay":
        before = _numbers(place)
        assert before == [*range(0, 2 * len(before), 2)]
        assert 0 < len(before) < ROWS // 2
        done = replay(spark, log, place, where="n % 2 = 0")
        assert done.rows == ROWS // 2 - len(before)
        assert _numbers(place) == [*range(0, ROWS, 2)]
        return
    done_rows = archive(spark, log).rows
    assert 0 < done_rows < ROWS
    assert _numbers(log) == [*range(ROWS)]
    with tm.Log(str(log)) as opened:
        report = opened.verify_archive(deep=True)
    # What its tasks stored behind the last step is gone as well.
    assert (report.is_healthy, report.rows, report.orphans) == (True, ROWS, 0)


def _numbers(log: Path) -> list[int]:
    with tm.Log(str(log)) as opened:
        return list(opened.read(rows_max=ROWS).to_arrow().column("n").to_pylist())
