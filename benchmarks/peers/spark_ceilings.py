"""What a Python data source can do at best: one that makes nothing, and a sink that keeps nothing.

Spark pickles both to its workers, which import them from here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import BinaryType, DataType, StructType

from benchmarks.settings import VALUE_BYTES

_Messages = Sequence[WriterCommitMessage | None]


class Ceiling(DataSource):
    """`format("ceiling")`: read with a schema, it yields the same batch again and again.

    Options of a read: `rows` in all, `tasks` that share them, `batchRows` of each batch; of a
    streaming one also `triggerRows`.
    """

    @classmethod
    def name(cls) -> str:
        return "ceiling"

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Constant(schema, self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _ConstantStream(schema, self.options)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        return _Dropping()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        raise NotImplementedError("Spark's own noop drops the rows of a stream")


class Ready(DataSource):
    """`format("ready")`: streams batches that lie ready, `<path>/0.arrow` and so on, a file of them
    in each micro-batch; the option `batches` says how many there are.
    """

    @classmethod
    def name(cls) -> str:
        return "ready"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        return _ReadyStream(self.options["path"], int(self.options["batches"]))


class _Rows(InputPartition):
    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class _Constant(DataSourceReader):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._rows = int(options["rows"])
        self._tasks = int(options["tasks"])
        self._batch_rows = int(options["batchRows"])

    def partitions(self) -> list[InputPartition]:
        return _divided(self._rows, self._tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _repeated(self._schema, self._batch_rows, partition)


class _ConstantStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._rows = int(options["rows"])
        self._task_rows = self._rows // int(options["tasks"])
        self._trigger_rows = int(options.get("triggerRows", self._rows))
        self._batch_rows = int(options["batchRows"])

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._trigger_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"next": min(self._rows, start["next"] + self._trigger_rows)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows = end["next"] - start["next"]
        return _divided(rows, -(-rows // self._task_rows))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from _repeated(self._schema, self._batch_rows, partition)


class _ReadyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, folder: str, batches: int) -> None:
        self._folder = folder
        self._batches = batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"next": 0}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        pass

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxFiles(1)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        return {"next": min(self._batches, start["next"] + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(start["next"], end["next"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(f"{self._folder}/{partition.value}.arrow") as file:
            found = pa.ipc.open_file(file)
            for number in range(found.num_record_batches):
                yield found.get_batch(number)


class _Dropping(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: _Messages) -> None:
        pass

    def abort(self, messages: _Messages) -> None:
        pass


def _divided(rows: int, tasks: int) -> list[InputPartition]:
    return [_Rows(rows * (at + 1) // tasks - rows * at // tasks) for at in range(tasks)]


def _repeated(
    schema: StructType, batch_rows: int, partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, _Rows):
        return
    left = partition.rows
    columns = [_column(field.dataType, min(batch_rows, left)) for field in schema]
    batch = pa.RecordBatch.from_arrays(columns, schema=to_arrow_schema(schema, timezone="UTC"))
    while left > 0:
        yield batch.slice(0, left) if left < batch.num_rows else batch
        left -= batch.num_rows


def _column(kind: DataType, rows: int) -> pa.Array:
    """Bytes of the usual length, else the numbers from 0 on."""
    if isinstance(kind, BinaryType):
        offsets = np.arange(0, (rows + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
        values = pa.py_buffer(bytes(rows * VALUE_BYTES))
        return pa.BinaryArray.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), values])
    field = to_arrow_schema(StructType().add("column", kind), timezone="UTC").field(0)
    return pa.array(np.arange(rows), pa.int64()).cast(field.type)
