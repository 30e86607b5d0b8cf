"""Has tasks of Spark store segments, and hears from them which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from tidemill.log.archive.manifest import Segment
from tidemill.spark.archives.task import StoreGroup, StoreRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Task: TypeAlias = StoreRange | StoreGroup

_SEGMENT = (
    "task long, file string, first long, rows long, bytes long, footer_bytes long, time_min long, "
    "time_max long, digest string, footer_digest string, schema string"
)
_ROUND_TASKS_MIN = 16  # after each round the manifest is changed, and progress told
_REMOTE_TASKS = 64  # ... where it is not known how many tasks run at once


def round_tasks(spark: SparkSession) -> int:
    """How many tasks a round has: all that run at once, several times over."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return _REMOTE_TASKS
    return max(_ROUND_TASKS_MIN, 2 * spark.sparkContext.defaultParallelism)


def stored(spark: SparkSession, tasks: Sequence[Task]) -> list[list[Segment]]:
    """Run tasks; returns the segments that each has stored, in order."""
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    found: list[list[Segment]] = [[] for _ in tasks]
    for row in numbers.mapInArrow(_Work(list(tasks)), _SEGMENT).collect():
        told = row.asDict()
        found[told.pop("task")].append(Segment(**told))
    return [sorted(segments, key=lambda one: one.first) for segments in found]


@dataclass(frozen=True, slots=True)
class _Work:
    """What Spark calls in each partition, which holds the number of one task."""

    tasks: list[Task]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for segment in self.tasks[number].run():
                    yield pa.RecordBatch.from_pylist([{"task": number, **segment._asdict()}])
