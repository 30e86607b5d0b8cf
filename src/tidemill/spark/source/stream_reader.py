"""A streaming read: follows a log, or what is pushed to a queue, micro-batch by micro-batch.

Spark keeps one of these in a process of its own beside the driver, and asks it, in turns

    initialOffset                where a new query begins; an old one has its checkpoint
    latestOffset(start, limit)   how far the next micro-batch goes
    partitions(start, end)       who reads what of it; again for one that was under way at a crash
    commit(end)                  everything up to there is done for good

while executors call `read` on copies of it, for one partition each.

With the option `consumer` the query holds a consumer, whose pointer `commit` moves: rows wait for
it, its lag shows, and a second query that claims it fences the first. Spark may never commit its
last micro-batch; so the pointer may trail the checkpoint, and never leads it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tidemill.errors import InvalidInput, MissingRows, Trimmed
from tidemill.log.contract import Ends
from tidemill.spark.address import Address
from tidemill.spark.schema import Shape
from tidemill.spark.source.admission import Admission
from tidemill.spark.source.batch_reader import read_range
from tidemill.spark.source.offsets import next_seq, offset
from tidemill.spark.source.options import SourceOptions
from tidemill.spark.source.partitions import RowRange
from tidemill.spark.source.planning import plan
from tidemill.spark.source.rows import NumberedRows, Position, open_rows

logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A query's end of a log or a queue."""

    def __init__(self, address: Address, options: SourceOptions, schema: StructType) -> None:
        self._address = address
        self._options = options
        self._schema = schema
        self._admission = Admission(
            options.trigger_rows_max, options.trigger_rows_min, options.trigger_delay_s_max
        )
        self._opened: NumberedRows | None = None
        self._position: Position | None = None
        self._is_checked = False  # that nothing was lost since the checkpoint
        self._target: int | None = None  # where a query over what is there now ends
        self._advanced_s = time.monotonic()  # when a micro-batch was last begun

    def __getstate__(self) -> dict[str, Any]:
        """Executors get what is plain; whatever is open stays here."""
        return {**self.__dict__, "_opened": None, "_position": None}

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        rows, options = self._rows(), self._options
        ends = rows.ends()
        known = rows.consumers().get(options.consumer or "")
        if options.start_us is not None:
            start = rows.seq_at(options.start_us)
            if start == ends.next and options.start_us > time.time_ns() // 1_000:
                raise InvalidInput(
                    f"startingTimestamp is in the future, and {rows.place} has no row of that time "
                    "yet: a query begins at a row; start it then, or leave earlier rows out by "
                    "their time"
                )
        elif options.start == "earliest":
            start = ends.first
        elif isinstance(options.start, int):
            start = options.start
        elif options.start is None and known is not None:
            # A consumer that exists goes on where it was, as everywhere else.
            start = known + 1
        else:
            start = ends.next
        if start > ends.next:
            raise InvalidInput(
                f"startingOffsets is {start}, and {rows.place} ends at {ends.next}; use latest, or "
                "wait until the row is there"
            )
        self._claim(start)
        if self._is_log and (options.start == "earliest" or options.start_us is not None):
            # Until the consumer was there, rows may have been given up that nobody named.
            start = max(start, rows.ends().first)
        return offset(start)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return self._admission.default_limit()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._rows().ends().next

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return offset(self._rows().ends().next)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        at = next_seq(start)
        ends = self._rows().ends()
        self._resume(at, ends)
        available = ends.next if self._target is None else min(ends.next, self._target)
        # What is lost does not count as rows of the micro-batch, and is not met again: a query that
        # was ahead of all rows goes back, for those that are to come have its numbers.
        begin = min(at, ends.next)
        if self._is_log:
            begin = max(begin, min(ends.first, available))
        waited_s = float("inf") if self._target is not None else self._waited_s()
        end = self._admission.end(begin, available, limit, waited_s)
        if end <= begin:
            return offset(begin)
        self._advanced_s = time.monotonic()
        return offset(end)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        first, last = next_seq(start), next_seq(end)
        if first >= last:
            return []
        rows, options = self._rows(), self._options
        ends = rows.ends()
        self._resume(first, ends)
        if last > ends.next:
            self._lose(
                MissingRows(
                    f"the checkpoint is at row {last} of {rows.place}, which ends at {ends.next}: "
                    "it was made anew, or rows that were not synced are lost",
                    first=ends.next,
                    last=last - 1,
                )
            )
            last = max(first, ends.next)
        if self._is_log:
            first = min(max(first, ends.first), last)
        ranges = plan(
            rows.layout(first, last),
            first,
            last,
            tasks_min=options.partitions_min,
            task_rows_max=options.partition_rows_max,
        )
        return [RowRange(*one) for one in ranges]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, RowRange):
            yield from read_range(self._address, self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        if self._position is None:
            return
        done = next_seq(end)
        if not self._options.fail_on_loss:
            # Rows that are gone cannot be acked; the query goes back to the end of the others.
            done = min(done, self._rows().ends().next)
        self._position.done(done)

    def stop(self) -> None:
        if self._position is not None:
            self._position.close()
        if self._opened is not None:
            self._opened.close()
        self._opened = self._position = None

    @property
    def _is_log(self) -> bool:
        return self._address.kind == "log"

    def _waited_s(self) -> float:
        return time.monotonic() - self._advanced_s

    def _rows(self) -> NumberedRows:
        if self._opened is None:
            self._opened = open_rows(self._address, fail_on_loss=self._options.fail_on_loss)
            Shape(self._schema).check(self._opened.columns, self._opened.place)
        return self._opened

    def _claim(self, start: int) -> None:
        consumer = self._options.consumer
        if consumer is not None and self._position is None:
            self._position = self._rows().claim(consumer, start)
            self._is_checked = True

    def _resume(self, at: int, ends: Ends) -> None:
        """Hold the consumer, and make sure that no row from `at` on may be gone."""
        rows, consumer = self._rows(), self._options.consumer
        if self._is_log and at < ends.first:
            self._lose(
                Trimmed(
                    f"rows {at} to {ends.first - 1} of {rows.place} were trimmed before the query "
                    "read them; give it a consumer, for which rows wait, or set failOnDataLoss to "
                    "false to go on without them",
                    first=ends.first,
                )
            )
        if at > ends.next:
            self._lose(
                MissingRows(
                    f"the checkpoint is at row {at} of {rows.place}, which ends at {ends.next}: it "
                    "was made anew, or rows that were not synced are lost",
                    first=ends.next,
                    last=at - 1,
                )
            )
        if self._is_checked or consumer is None:
            return
        pointer = rows.consumers().get(consumer)
        if not self._is_log and at < ends.next and (pointer is None or pointer >= at):
            # Only what a consumer has not done is sure to be there.
            state = "is not there" if pointer is None else f"is at {pointer + 1} already"
            self._lose(
                Trimmed(
                    f"consumer {consumer!r} of {rows.place} {state}, and the checkpoint at {at}: "
                    "items between may be gone; set failOnDataLoss to false to go on with what is "
                    "left",
                    first=ends.first,
                )
            )
        self._claim(min(at, ends.next))

    def _lose(self, loss: Trimmed | MissingRows) -> None:
        if self._options.fail_on_loss:
            raise loss
        logger.warning("rows are left out: %s", loss)
