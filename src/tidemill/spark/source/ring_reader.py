"""A batch read of a ring: its entries at one moment, which the driver reads when it plans.

A ring holds no more than its capacity, and takers empty it while Spark works. So the entries travel
with the tasks, each of which has its share of them, and a task that is run again has the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidemill.batch import int64_array
from tidemill.limits import INT64_MAX
from tidemill.records.protocol.values import Entry, encode_values
from tidemill.records.ring import Ring
from tidemill.spark.address import Address
from tidemill.spark.schema import Shape
from tidemill.spark.source.options import SourceOptions

# `value` is the bytes of an entry, or the text of its JSON; `kind` says which.
COLUMNS = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
OF_RINGS = ("path", "kind", "buffers", "minPartitions", "maxRecordsPerPartition")
_TASK_BYTES = 16 * 1024 * 1024
_KINDS = pa.array(["bytes", "json"])


class Entries(InputPartition):
    """Consecutive entries."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        super().__init__(None)
        # A slice would travel with the bytes of the whole that it is of.
        self.batch = batch.take(int64_array(np.arange(batch.num_rows)))

    def __repr__(self) -> str:
        return f"Entries({self.batch.num_rows} rows)"


class RingReader(DataSourceReader):
    """What is in a ring when the query is planned."""

    def __init__(self, address: Address, options: SourceOptions, schema: StructType) -> None:
        self._address = address
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        Shape(self._schema).check(COLUMNS, self._address.place)
        with Ring(self._address.url, buffers=self._options.buffers) as ring:
            batch = to_batch(ring.get_many(0, INT64_MAX))
        rows = batch.num_rows
        if not rows:
            return []
        parts = max(self._options.partitions_min or 1, -(-batch.nbytes // _TASK_BYTES))
        step = max(1, -(-rows // parts))
        step = min(step, self._options.partition_rows_max or step)
        return [Entries(batch.slice(start, step)) for start in range(0, rows, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Entries):  # There may be nothing, and Spark asks all the same.
            yield Shape(self._schema).of(partition.batch)


def to_batch(entries: Sequence[Entry]) -> pa.RecordBatch:
    """Entries as columns.

    >>> to_batch([Entry(7, b"a"), Entry(8, [1])]).to_pylist()
    [{'offset': 7, 'kind': 'bytes', 'value': b'a'}, {'offset': 8, 'kind': 'json', 'value': b'[1]'}]
    """
    kinds, values = encode_values((entry.value for entry in entries), INT64_MAX)
    columns = [
        pa.array([entry.offset for entry in entries], pa.int64()),
        _KINDS.take(pa.array(list(kinds), pa.int8())),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=COLUMNS)
