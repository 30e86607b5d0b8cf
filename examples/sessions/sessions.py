"""Sessions of visitors, which end when nothing came for a while; see the README beside it."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidemill.spark import Sink, pipeline


@pipeline(source="visits/", sink=Sink("sessions/", kind="queue", key="start"))
def sessions(visits: DataFrame) -> DataFrame:
    """A row for each session that is over: guests are gone after 5 minutes, members after 30."""
    timed = visits.withColumn("at", f.timestamp_millis("at_ms")).withWatermark("at", "2 minutes")
    is_guest = f.col("user").startswith("guest-")
    idle = f.when(is_guest, "5 minutes").otherwise("30 minutes")
    found = timed.groupBy(f.session_window("at", idle), "user").agg(
        f.count("*").alias("pages"),
        f.min("at").alias("start"),
        ((f.max("at_ms") - f.min("at_ms")) / 1000).alias("seconds"),
    )
    return found.select("start", "user", "pages", "seconds")


if __name__ == "__main__":
    sessions.run(every_s=5)  # For spark-submit.
