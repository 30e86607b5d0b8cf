"""Makes `spark.read.format("tidemill")` work without registration: Spark looks for modules whose
name starts with `pyspark_`, and in them for `DefaultSource`.
"""

from tidemill.spark.data_source import TidemillDataSource as DefaultSource

__all__ = ["DefaultSource"]
