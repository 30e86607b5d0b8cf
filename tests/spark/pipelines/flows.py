"""A pipeline with sinks of each kind, in a file of its own, and what has to be in them."""

from __future__ import annotations

import json
from pathlib import Path

from pyarrow import parquet

from tests.spark.pipelines.numbers import numbers_of, rows_of

SPLIT = """
from pathlib import Path
from pyspark.sql.functions import udf
from pyspark.sql.types import LongType
from tidemill.spark import Sink, Source, pipeline

HERE = Path(__file__).parent

@udf(LongType())
def twice(n):
    return 2 * n

@pipeline(
    source=Source(HERE / "in", rules={"a multiple of 7": "n % 7 != 0"}, maxOffsetsPerTrigger=50),
    sink={"log": HERE / "log", "parquet": Sink(HERE / "parquet", format="parquet")},
    dead_letters=HERE / "bad",
)
def split(numbers):
    return {"log": numbers.select(twice("n").alias("n")), "parquet": numbers.select("n")}

if __name__ == "__main__":
    print({sink: done.lag for sink, done in split.run(once=True).items()})
"""


def write_split(folder: Path) -> Path:
    file = folder / "flows.py"
    file.write_text(SPLIT)
    return file


def check_split(folder: Path, count: int) -> None:
    """Each number came to each sink once, in order where there is one."""
    good = [n for n in range(count) if n % 7]
    assert numbers_of(folder / "log") == [2 * n for n in good]
    assert sorted(parquet.read_table(folder / "parquet")["n"].to_pylist()) == good
    letters = rows_of(folder / "bad")
    assert [json.loads(one["row"])["n"] for one in letters] == list(range(0, count, 7))
