"""Every queue is a DataFrame: the source and the sink that Spark knows as `tidemill`.

session       a Spark session that is set up and quiet
java          the Java it runs on, also where the machine has none
cache         files that are made once and kept
data_source   what `format("tidemill")` is; Spark makes one for each read or write
"""

from tidemill.errors import MissingExtra

try:
    import pyspark  # noqa: F401
except ImportError as cause:
    raise MissingExtra("Spark needs PySpark: pip install 'tidemill[spark]'") from cause

from tidemill.spark.session import session

__all__ = ["session"]
