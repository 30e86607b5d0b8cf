"""A pipeline that runs: a streaming query for each sink, watched together and stopped together.

Each query reads the sources for itself, as a consumer of its own, and has a checkpoint of its own:
a sink gets each row once, whatever happens to the others, and none waits for another.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemill.errors import InvalidPipeline
from tidemill.limits import QUERY_STARTS_MAX
from tidemill.spark.pipelines.belonging import check_sink
from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.failures import failed, is_sparks
from tidemill.spark.pipelines.frames import is_remote, start_query, streams
from tidemill.spark.pipelines.parquet import check_folder, sweep
from tidemill.spark.pipelines.state import Hold, State
from tidemill.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

logger = logging.getLogger(__name__)

_LOOK_S = 0.2
_TOO_BUSY = "Python worker failed to connect back"
_OPENING = "Initializing sources"  # what Spark says that a query is doing


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """What a run has done for a sink."""

    batches: int = 0  # that wrote something, or might have
    rows: int = 0  # that were read for it
    written: int | None = 0  # rows; None where Spark does not tell, as for Parquet
    last_batch: int | None = None  # the number of the last one
    lag: int | None = None  # rows that were there when it began, and are not done
    rows_per_s: float | None = None  # of the last batch

    @property
    def share(self) -> float | None:
        """How much of what is known of is done."""
        if self.lag is None:
            return None
        return self.rows / (self.rows + self.lag) if self.rows + self.lag else 1.0


class Run:
    """The queries of a pipeline. Leaving its block stops them."""

    def __init__(
        self, pipeline: Pipeline, state: State, hold: Hold, watches: dict[str, _Watch]
    ) -> None:
        self.pipeline = pipeline
        self.state = state
        self._hold = hold
        self._watches = watches
        self._is_over = False

    def progress(self) -> dict[str, SinkProgress]:
        """How far each sink is."""
        return {sink: watch.look() for sink, watch in self._watches.items()}

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all queries have ended, for so long; says whether they have.

        If one fails the others are stopped, and what went wrong is raised.
        """
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            running: _Watch | None = None
            for sink, watch in self._watches.items():
                if watch.is_active() or self._check(sink, watch):
                    running = running or watch
            if running is None:
                self._end()
                return True
            left_s = _LOOK_S if deadline_s is None else min(_LOOK_S, deadline_s - time.monotonic())
            if left_s <= 0:
                return False
            running.wait(left_s)

    def stop(
        self,
        *,
        at_once: bool = False,  # in the middle of a batch, which costs the work done for it
        on_wait: Callable[[], None] | None = None,  # called now and then; if it raises, at once
    ) -> None:
        """Stop all queries, each behind the batch that it is in."""
        if self._is_over:
            return
        try:
            if not at_once:
                marks = {sink: watch.look().batches for sink, watch in self._watches.items()}
                for sink, watch in self._watches.items():
                    watch.wait_for_end_of_batch(marks[sink], on_wait)
        finally:
            for watch in self._watches.values():
                watch.stop()
            self._end()
        for sink, watch in self._watches.items():
            self._check(sink, watch)

    def _check(self, sink: str, watch: _Watch) -> bool:
        """Raise if a query has failed; says whether it was started again instead."""
        error = watch.failure()
        if error is None:
            return False
        try:
            if not self._is_over and watch.start_again(error):
                return True
        except PySparkException as again:
            error = again
        for other in self._watches.values():
            other.stop()
        self._end()
        raise failed(error, self.pipeline.name, sink) from error

    def _end(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.progress()
        try:
            for sink in self.pipeline.sinks.values():
                if self.state.folder is not None:
                    sweep(sink)
        finally:
            self._hold.release()

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Whoever leaves by an exception does not want to wait.
        self.stop(at_once=error is not None)


class _Watch:
    """A query, and what it told of its batches: Spark forgets all but the last hundred."""

    def __init__(self, start: Callable[[], StreamingQuery]) -> None:
        self._start = start
        self._query = start()
        self._starts = 1  # since a batch was last done
        _wait_for_sources(self._query)
        self._seen = SinkProgress()
        self._told_at = ""  # when the last of it was told

    def look(self) -> SinkProgress:
        last: Any = self._query.lastProgress
        if last is not None and last["timestamp"] != self._told_at:
            self._told_at = last["timestamp"]
            for one in self._query.recentProgress:
                self._count(one)
        return self._seen

    def _count(self, told: Any) -> None:
        seen = self._seen
        if "addBatch" not in told["durationMs"]:
            # Spark looked for rows and found none.
            self._seen = replace(seen, lag=_lag(told))
            return
        if seen.last_batch is not None and told["batchId"] <= seen.last_batch:
            return
        self._starts = 1
        # A server of Spark Connect leaves sums out; those of each source are there.
        rows = sum(source["numInputRows"] or 0 for source in told["sources"])
        written, passed_ms = told["sink"]["numOutputRows"], told["durationMs"]["triggerExecution"]
        self._seen = SinkProgress(
            batches=seen.batches + 1,
            rows=seen.rows + rows,
            written=_sum(seen.written, written),
            last_batch=told["batchId"],
            lag=_lag(told),
            rows_per_s=rows * 1000 / max(1, passed_ms),
        )

    def start_again(self, error: BaseException) -> bool:
        """Go on where it was, if nothing is wrong but that the machine is too busy."""
        if _TOO_BUSY not in str(error) or self._starts >= QUERY_STARTS_MAX:
            return False
        logger.warning("%s: Spark waited in vain for a Python; starting again", self._query.name)
        self.look()
        self._starts += 1
        self._query = self._start()
        _wait_for_sources(self._query)
        return True

    def is_active(self) -> bool:
        return self._query.isActive

    def failure(self) -> BaseException | None:
        return self._query.exception()

    def wait(self, timeout_s: float) -> None:
        try:
            self._query.awaitTermination(timeout_s)  # type: ignore[arg-type]
        except PySparkException:
            pass  # It is told by `failure`, with the name of the sink.

    def wait_for_end_of_batch(self, batches: int, on_wait: Callable[[], None] | None) -> None:
        while (
            self._query.isActive
            and self._query.status["isTriggerActive"]
            and self.look().batches == batches
        ):
            self.wait(_LOOK_S)
            if on_wait is not None:
                on_wait()

    def stop(self) -> None:
        if self._query.isActive:
            self._query.stop()


def start(
    pipeline: Pipeline,
    spark: SparkSession | None,
    *,
    once: bool,
    every_s: float,
    state: str | None,
) -> Run:
    """Start all queries of a pipeline, or none."""
    if once and every_s:
        raise InvalidPipeline("a pipeline runs once, or again and again: once or every_s, not both")
    if not 0 <= every_s < 10**9:
        raise InvalidPipeline(f"every_s is a number of seconds from 0 on, not {every_s}")
    trigger: dict[str, bool | str] = {"processingTime": f"{round(every_s * 1000)} milliseconds"}
    if once:
        trigger = {"availableNow": True}
    spark = session(pipeline.name) if spark is None else spark
    place = State.of(pipeline, state, is_remote=is_remote(spark))
    hold = Hold(place, spark)
    watches: dict[str, _Watch] = {}
    try:
        for name, sink in pipeline.sinks.items():
            if place.folder is not None:
                check_folder(sink, place.checkpoint(name))
                check_sink(pipeline, place, name)
                sweep(sink)
        for name in pipeline.sinks:
            frame = streams(pipeline, spark, place, name)[name]
            try:
                watches[name] = _Watch(partial(_start_query, frame, place, pipeline, name, trigger))
            except Exception as error:
                if not is_sparks(error):
                    raise
                raise failed(error, pipeline.name, name) from error
    except BaseException:
        for watch in watches.values():
            watch.stop()
        hold.release()
        raise
    return Run(pipeline, place, hold, watches)


def _start_query(
    frame: DataFrame, place: State, pipeline: Pipeline, sink: str, trigger: dict[str, bool | str]
) -> StreamingQuery:
    return start_query(
        frame,
        pipeline.sinks[sink],
        name=place.consumer(sink),
        checkpoint=place.checkpoint(sink),
        transaction=place.transaction(sink),
        trigger=trigger,
    )


def _wait_for_sources(query: StreamingQuery) -> None:
    """Let a query open its sources before the next one does. Each takes a Python of its own, for
    which Spark waits ten seconds: many that start at once on few cores might take longer.
    """
    while query.isActive and query.status["message"] == _OPENING:
        try:
            query.awaitTermination(_LOOK_S)  # type: ignore[arg-type]
        except PySparkException:
            return  # Whoever waits for the end is told.


def _sum(before: int | None, more: int | None) -> int | None:
    """Rows that were written, where Spark tells; -1 is its word for not doing so."""
    return None if before is None or more is None or more < 0 else before + more


def _lag(told: Any) -> int | None:
    """Rows that the sources have and the batch has not; None where a source does not tell."""
    lag = 0
    for source in told["sources"]:
        end, latest = _next(source["endOffset"]), _next(source["latestOffset"])
        if end is None or latest is None:
            return None
        lag += max(0, latest - end)
    return lag


def _next(offset: Any) -> int | None:
    """The number in an offset of ours, which PySpark gives as it was, or as text."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    found = offset.get("next") if isinstance(offset, dict) else None
    return found if isinstance(found, int) else None
