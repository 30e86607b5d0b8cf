"""What tasks have staged, as rows that Spark brings to the driver.

A job that commits by itself has its tasks run in `mapInArrow`: each stages what it is given, and
hands on one row that tells of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext

from tidemill.errors import Bug
from tidemill.files.staging.transaction import StagedPart
from tidemill.spark.sink.target import Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART = "partition long, name string, frames long, rows long, total_bytes long, digest binary"


def stage(
    target: Target, name: str, batches: Iterable[pa.RecordBatch], partition: int | None = None
) -> StagedPart:
    """Stage rows under a name, as one attempt at a partition; None: that of the task."""
    if partition is None:
        context = TaskContext.get()
        if context is None:
            raise Bug("rows are staged by tasks of Spark alone")
        partition = context.partitionId()
    attempt = target.staging(name).attempt(partition)
    try:
        for batch in batches:
            attempt.write(batch)
        return attempt.finish()
    except BaseException:
        attempt.discard()
        raise


def told(part: StagedPart) -> pa.RecordBatch:
    """A part as the row that a task hands on."""
    return pa.RecordBatch.from_pylist([part._asdict()])


def collected(parts: DataFrame) -> list[StagedPart]:
    """The parts that tasks have told of."""
    return [StagedPart(**row.asDict()) for row in parts.collect()]


def staged(frame: DataFrame, target: Target, name: str) -> list[StagedPart]:
    """Have the rows of a DataFrame staged by tasks of Spark."""
    # `mapInArrow` looks columns up as SQL would, for which a dot or a quote in a name is too much.
    plain = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
    return collected(plain.mapInArrow(_StageRows(target, name, tuple(frame.columns)), PART))


@dataclass(frozen=True, slots=True)
class _StageRows:
    """What `mapInArrow` calls."""

    target: Target
    name: str
    columns: tuple[str, ...]  # what the columns are called, in order

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        chosen, names = self.target.columns.chosen, list(self.columns)
        rows = (chosen(batch.rename_columns(names)) for batch in batches)
        yield told(stage(self.target, self.name, rows))
