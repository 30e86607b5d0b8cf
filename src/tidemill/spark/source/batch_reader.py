"""A batch read: the rows of a log, or what is left of a queue, as of when the query is planned."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from tidemill.batch import Batch, Layout
from tidemill.errors import Bug, Corrupt, ForkRemoved, InvalidInput, Trimmed
from tidemill.files.folder.folder_options import CorruptionMode
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.queue.consuming_end import ConsumingEnd
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.readers.follower import Follower
from tidemill.files.readers.kept_snapshot import Bounds, Plan
from tidemill.limits import INT64_MAX, INT64_MIN
from tidemill.log.contract import Ends
from tidemill.spark.address import Address
from tidemill.spark.schema import Shape
from tidemill.spark.source.chunks import chunks
from tidemill.spark.source.options import SourceOptions, Where
from tidemill.spark.source.partitions import FramesOfSnapshot, RowRange
from tidemill.spark.source.planning import plan
from tidemill.spark.source.rows import NumberedRows, open_rows

logger = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """What all batch reads share.

    Filters are not taken from Spark, which keeps what was planned for one query and uses it for
    another of the same DataFrame; see decision 45. What to leave out is said by options.
    """

    def __init__(self, address: Address, options: SourceOptions, schema: StructType) -> None:
        self._address = address
        self._options = options
        self._schema = schema

    def _ranges(self, layout: Layout, start: int, end: int) -> list[tuple[int, int]]:
        return plan(
            layout,
            start,
            end,
            tasks_min=self._options.partitions_min,
            task_rows_max=self._options.partition_rows_max,
        )


class LogBatchReader(BatchReader):
    """Rows of a log, from one number to another."""

    def partitions(self) -> list[InputPartition]:
        with open_rows(self._address, fail_on_loss=self._options.fail_on_loss) as rows:
            Shape(self._schema).check(rows.columns, rows.place)
            start, end = self._range(rows)
            ranges = self._ranges(rows.layout(start, end), start, end)
        return [RowRange(*one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RowRange):
            return  # There was nothing to divide, and Spark asks all the same.
        yield from read_range(self._address, self._options, self._schema, partition)

    def _range(self, rows: NumberedRows) -> tuple[int, int]:
        options = self._options
        start, end = range_of(options, rows.ends(), rows.place, rows.seq_at)
        low, high = options.bounds.seqs
        return max(start, low), min(end, high + 1)


class SnapshotReader(BatchReader):
    """What is left of a queue or a fork at one moment."""

    def partitions(self) -> list[InputPartition]:
        options = self._options
        on_corruption: CorruptionMode = "abort" if options.fail_on_loss else "continue"
        with PriorityQueue(self._address.url, read_only=True, on_corruption=on_corruption) as queue:
            view = queue._core.view
            if not isinstance(view, Follower):
                raise Bug("a queue that is read only is followed")
            Shape(self._schema).check(Batch.empty(queue.schema).to_arrow().schema, str(queue.path))
            # No call that looks for news from here on: all is of one moment.
            end = self._end_of(queue)
            arrived = Ends(1, view.state.arrived + 1)
            start, stop = range_of(options, arrived, self._address.place, None)
            until_us = INT64_MAX if options.end_us is None else options.end_us - 1
            times_us = (options.start_us or INT64_MIN, until_us)
            wanted = options.bounds.within(Bounds(seqs=(start, stop - 1), times_us=times_us))
            if wanted.is_empty:
                return []
            planned = Plan(view, end._cursor, wanted)
            if not planned.rows:
                return []
            ranges = self._ranges(planned.layout, 0, planned.rows)
            kept = planned.keep(options.snapshot_s)
        return [FramesOfSnapshot(kept, planned.part(*one)) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, FramesOfSnapshot):
            return  # There was nothing to divide, and Spark asks all the same.
        shape = Shape(self._schema)
        partition.kept.keep()
        frames = partition.kept.read(partition.part, self._on_damage())
        yield from chunks(shape.of(batch) for batch in frames)

    def _end_of(self, queue: PriorityQueue) -> ConsumingEnd:
        name = self._options.fork
        if name is None:
            return queue
        if name not in queue.forks():
            known = ", ".join(queue.forks()) or "none"
            raise ForkRemoved(f"{queue.path} has no fork {name!r}; its forks: {known}")
        return queue.fork(name)

    def _on_damage(self) -> Callable[[DamagedFrame], None]:
        def on_damage(damage: DamagedFrame) -> None:
            if self._options.fail_on_loss:
                raise Corrupt(damage.reason, path=damage.path, offset=damage.offset) from damage
            logger.warning("%d items are left out: %s", damage.entry.rows, damage)

        return on_damage


def range_of(
    options: SourceOptions,
    ends: Ends,
    place: str,  # as it may be shown: an address may hold a password
    seq_at: Callable[[int], int] | None,
) -> tuple[int, int]:
    """The rows from one number up to another, as the options have them."""

    def number(where: Where | None, time_us: int | None, otherwise: int) -> int:
        if time_us is not None and seq_at is not None:
            return seq_at(time_us)
        if where is None:
            return otherwise
        if where == "earliest":
            return ends.first
        return ends.next if where == "latest" else int(where)

    start = number(options.start, options.start_us, ends.first)
    end = number(options.end, options.end_us, ends.next)
    if options.fail_on_loss:
        if start < ends.first:
            raise Trimmed(
                f"rows {start} to {ends.first - 1} of {place} were trimmed; start at "
                f"{ends.first} or earliest, or set failOnDataLoss to false",
                first=ends.first,
            )
        for name, at in (("startingOffsets", start), ("endingOffsets", end)):
            if at > ends.next:
                raise InvalidInput(
                    f"{name} is {at}, and {place} ends at {ends.next}; use latest, or set "
                    "failOnDataLoss to false"
                )
    if start < ends.first:
        logger.warning(
            "rows %d to %d of %s are left out: they were trimmed", start, ends.first - 1, place
        )
    start, end = max(start, ends.first), min(end, ends.next)
    return start, max(start, end)


def read_range(
    address: Address, options: SourceOptions, schema: StructType, wanted: RowRange
) -> Iterator[pa.RecordBatch]:
    """The rows of a range, as Spark wants them."""
    shape = Shape(schema)
    with open_rows(address, fail_on_loss=options.fail_on_loss) as rows:
        found = rows.read(wanted.start, wanted.end, fail_on_loss=options.fail_on_loss)
        yield from chunks(shape.of(batch) for batch in found)
