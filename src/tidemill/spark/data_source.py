"""What `format("tidemill")` is: Spark makes one for each read and each write."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from tidemill.errors import InvalidInput
from tidemill.files.readers.kept_snapshot import Bounds
from tidemill.spark.address import Address, find
from tidemill.spark.schema import check_distinct, spark_schema
from tidemill.spark.source.batch_reader import LogBatchReader, SnapshotReader
from tidemill.spark.source.options import OF_RINGS_ALONE, OF_SNAPSHOTS, OF_STREAMS, SourceOptions
from tidemill.spark.source.rows import open_rows
from tidemill.spark.source.stream_reader import StreamReader


class TidemillDataSource(DataSource):
    """A queue or a log, as Spark reads and writes it."""

    @classmethod
    def name(cls) -> str:
        return "tidemill"

    def schema(self) -> StructType:
        """seq, key (of a queue), time, and the columns of the payload as they are now."""
        _, address = self._source()
        if address.kind == "ring":
            return spark_schema(_ring_columns())
        with open_rows(address, fail_on_loss=False) as rows:
            check_distinct(
                rows.columns.names,
                f"{rows.place} has",
                'say which of them are wanted, .schema("seq BIGINT, …")',
            )
            return spark_schema(rows.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options, address = self._source()
        if address.kind == "ring":
            from tidemill.spark.source.ring_reader import OF_RINGS, RingReader  # noqa: PLC0415

            options.refuse(options.given.difference(OF_RINGS), "is not for rings: drop it")
            return RingReader(address, options, schema)
        options.refuse(OF_RINGS_ALONE, "is for rings: drop it")
        options.refuse(OF_STREAMS, "is for streaming queries: use readStream, or drop it")
        if address.kind == "log":
            options.refuse(
                OF_SNAPSHOTS,
                f"is for priority queues, of which a read keeps a snapshot, and {address.place} is "
                "a log: drop it",
            )
            if options.fork is not None:
                raise InvalidInput(f"{address.place} is a log, and only queues have forks")
            if options.bounds.keys != Bounds().keys:
                raise InvalidInput(f"{address.place} is a log, whose rows have no keys")
            return LogBatchReader(address, options, schema)
        return SnapshotReader(address, options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options, address = self._source()
        if address.kind == "ring":
            raise InvalidInput(
                f"{address.place} is a ring, whose entries others take out and write over: a "
                "streaming query would miss some and could not go back; read it as a batch, or "
                "take entries out in a program that sends them to a log"
            )
        options.refuse(OF_RINGS_ALONE, "is for rings: drop it")
        options.refuse(OF_SNAPSHOTS, "is for batches: a streaming query keeps no snapshot; drop it")
        if options.fork is not None:
            raise InvalidInput(
                "a streaming query follows what is pushed, whoever pops it, and so has no fork; "
                "read the fork as a batch"
            )
        if options.end is not None or options.end_us is not None:
            raise InvalidInput(
                "a streaming query has no end; read a batch, or use Trigger.AvailableNow"
            )
        if options.bounds != Bounds():
            raise InvalidInput("bounds are for batches; a streaming query filters its DataFrame")
        if address.kind == "queue" and options.consumer is None:
            raise InvalidInput(
                f"{address.place} is a priority queue, which keeps items for its consumers: name "
                'one for this query, .option("consumer", "my-query")'
            )
        return StreamReader(address, options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        # Who only reads needs none of it.
        from tidemill.spark.sink import batch_writer  # noqa: PLC0415

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from tidemill.spark.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self.options, schema, overwrite)

    def _source(self) -> tuple[SourceOptions, Address]:
        options = SourceOptions.parse(self.options)
        return options, find(options.path, options.kind)


def _ring_columns() -> pa.Schema:
    # Who reads no ring needs none of it.
    from tidemill.spark.source.ring_reader import COLUMNS  # noqa: PLC0415

    return COLUMNS
