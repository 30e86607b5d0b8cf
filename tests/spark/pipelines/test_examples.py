"""The examples run as their READMEs say."""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

import tidemill as tm
from tests.spark.pipelines.numbers import rows_of
from tidemill.spark.pipelines.loading import load

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_clicks_per_minute(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example = EXAMPLES / "clicks_per_minute"
    produce = module(example / "produce.py").produce
    per_minute = load(example / "clicks.py")["per_minute"]
    produce(6_000)
    per_minute.run(spark, once=True)
    clicks = rows_of(Path("clicks"))
    good = [one for one in clicks if one["user"] is not None and one["at_ms"] is not None]
    assert len(rows_of(Path("bad_clicks"))) == len(clicks) - len(good) == 120
    assert parquet.read_table("archive").num_rows == len(good)
    expected = Counter((one["at_ms"] // 60_000, one["page"]) for one in good)
    with tm.PriorityQueue("counts") as queue:
        rows = queue.pop(-1).to_arrow().to_pylist()
    found = {(one["key"] // (60 * 10**9), one["page"]): one["clicks"] for one in rows}
    assert len(found) == len(rows)
    # The last minutes may still get clicks, and wait in the state.
    last = max(minute for minute, _ in found)
    assert found == {key: count for key, count in expected.items() if key[0] <= last}
    assert last >= max(minute for minute, _ in expected) - 4
    assert os.listdir("counts.state") == ["per_minute"]
