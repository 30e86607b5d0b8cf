"""Readings of devices by the minute, and late ones by themselves; see the README beside it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidemill.spark import Sink, Source, pipeline

LATE_MS = 10 * 60_000  # A reading that is received later than this is late.


@pipeline(
    source=Source(
        "telemetry/",
        rules={
            "no value": "value IS NOT NULL",
            "from the future": "measured_ms <= received_ms",
        },
        maxOffsetsPerTrigger=100_000,
    ),
    sink={
        "minutes": Sink("minutes/", kind="queue", key="minute"),
        "late": "late/",
    },
    dead_letters="bad_readings/",
)
def telemetry(readings: DataFrame) -> dict[str, DataFrame]:
    """Sum up each minute of each device once no timely reading of it can come any more."""
    is_late = f.col("received_ms") - f.col("measured_ms") > LATE_MS
    at = f.timestamp_millis("measured_ms")
    timely = readings.where(~is_late).withColumn("at", at)
    minutes = (
        timely.withWatermark("at", f"{LATE_MS} milliseconds")
        .groupBy(f.window("at", "1 minute"), "device")
        .agg(
            f.count("*").alias("readings"),
            f.min("value").alias("least"),
            f.max("value").alias("greatest"),
        )
    )
    return {
        "minutes": minutes.select(f.col("window.start").alias("minute"), "*").drop("window"),
        "late": readings.where(is_late),
    }


if __name__ == "__main__":
    telemetry.run(every_s=5)  # For spark-submit.
