"""Readings by window, bad ones aside: copied to the folder of the main job, and run from there.

tidemill pipeline run pipeline.py --once
"""

from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tidemill.spark import Sink, Source, pipeline

HERE = Path(__file__).parent


@pipeline(
    source=Source(
        HERE / "readings",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=1_000_000,
        rules={
            "no value": "value IS NOT NULL",
            "out of range": "value IS NULL OR value BETWEEN 0 AND 1000",
        },
    ),
    sink={
        "windows": Sink(HERE / "windows", kind="queue", key="start"),
        "archive": Sink(HERE / "archive", format="parquet"),
    },
    dead_letters=HERE / "bad",
)
def readings(readings: DataFrame) -> dict[str, DataFrame]:
    measured = readings.withColumn("at", f.timestamp_micros(f.expr("measured_ns div 1000")))
    # Later than this no reading comes; until then a window waits for it.
    timely = measured.withWatermark("at", "15 minutes")
    windows = timely.groupBy(f.window("at", "10 seconds"), "device", "metric").agg(
        f.count("*").alias("readings"),
        f.sum(_hundredths()).alias("total_hundredths"),
        f.min("value").alias("least"),
        f.max("value").alias("greatest"),
    )
    return {
        "windows": windows.select(f.col("window.start").alias("start"), "*").drop("window"),
        "archive": measured.drop("seq", "time"),
    }


def _hundredths() -> Column:
    """Whole numbers: their sum is the same in whatever order they are added."""
    return f.round(f.col("value") * 100).cast("long")
