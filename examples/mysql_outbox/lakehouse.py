"""Orders from a log on MySQL to a lakehouse of Parquet files; see the README beside it."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tidemill.spark import Sink, Source, pipeline

ORDER = "id BIGINT, customer STRING, cents BIGINT, placed TIMESTAMP"


@pipeline(
    source=Source(
        os.environ.get("SHOP", "mysql://root@127.0.0.1:3306/shop/orders"),
        rules={"no order": f"from_json(CAST(value AS STRING), '{ORDER}').id IS NOT NULL"},
    ),
    sink=Sink("lakehouse/orders", format="parquet", partition_by="day"),
    dead_letters="bad_orders/",
)
def orders(events: DataFrame) -> DataFrame:
    """Each order as a row, in a folder for each day."""
    order = f.from_json(f.col("value").cast("string"), ORDER)
    found = events.select("seq", order.alias("order")).select("seq", "order.*")
    return found.withColumn("day", f.to_date("placed"))


if __name__ == "__main__":
    orders.run(every_s=5)  # For spark-submit.
