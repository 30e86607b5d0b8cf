"""Lines of a web server's log, taken apart on a cluster; see the README beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from tidemill.spark import Sink, pipeline, reject

LINE = (
    r"^(?P<host>\S+) \S+ \S+ \[(?P<at>[^\]]+)\] "
    r'"(?P<method>[A-Z]+) (?P<path>\S+) [^"]*" (?P<status>\d{3}) (?P<bytes>\d+)'
)
TEXTS = ["host", "at", "method", "path"]


def taken_apart(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What executors do, a whole batch at a time; lines that are none have nulls."""
    for batch in batches:
        line = batch.column("line")
        parts = pc.extract_regex(line, LINE)
        texts = [pc.struct_field(parts, name) for name in TEXTS]
        numbers = [pc.struct_field(parts, name).cast(pa.int64()) for name in ("status", "bytes")]
        yield pa.record_batch(
            [batch.column("seq"), line, *texts, *numbers],
            ["seq", "line", *TEXTS, "status", "bytes"],
        )


@pipeline(
    source="lines/",
    sink={"requests": Sink("requests/", format="parquet")},
    dead_letters="no_lines/",
)
def access(lines: DataFrame) -> dict[str, DataFrame]:
    """Every request as a row of columns."""
    texts = ", ".join(f"{name} STRING" for name in TEXTS)
    schema = f"seq BIGINT, line STRING, {texts}, status BIGINT, bytes BIGINT"
    found = lines.selectExpr("seq", "CAST(value AS STRING) AS line").mapInArrow(taken_apart, schema)
    bad = found.where("status IS NULL").select("seq", "line")
    return {
        "requests": found.where("status IS NOT NULL").drop("line"),
        "dead_letters": reject(bad, "no line of an access log", source="lines"),
    }


if __name__ == "__main__":
    access.run(every_s=2)  # For spark-submit.
