"""What `format("tidemill")` is: Spark makes one for each read and each write."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType


class TidemillDataSource(DataSource):
    """A queue or a log, as Spark reads and writes it."""

    @classmethod
    def name(cls) -> str:
        return "tidemill"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # Who only reads needs none of it.
        from tidemill.spark.sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from tidemill.spark.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)
