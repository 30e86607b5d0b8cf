"""Clicks per page and minute, as a pipeline; see the README beside it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidemill.spark import Sink, pipeline


@pipeline(
    source="clicks/",
    sink={
        "counts": Sink("counts/", kind="queue", key="minute"),
        "archive": Sink("archive/", format="parquet", partition_by="day"),
    },
    dead_letters="bad_clicks/",
    rules={"no user": "user IS NOT NULL", "no time": "at_ms > 0"},
)
def per_minute(clicks: DataFrame) -> dict[str, DataFrame]:
    """Count clicks by page and minute, and keep them all."""
    timed = clicks.withColumn("at", f.timestamp_millis("at_ms"))
    minutes = timed.withWatermark("at", "2 minutes").groupBy(f.window("at", "1 minute"), "page")
    counts = minutes.count().selectExpr("window.start AS minute", "page", "count AS clicks")
    kept = timed.select("user", "page", "at", f.to_date("at").alias("day"))
    return {"counts": counts, "archive": kept}


if __name__ == "__main__":
    per_minute.run(every_s=2)  # For spark-submit.
