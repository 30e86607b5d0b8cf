"""How far a pipeline is, whoever runs it: from its checkpoints and its sources, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tidemill.errors import InvalidInput
from tidemill.spark.address import find
from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.ends import TIDEMILL
from tidemill.spark.pipelines.offsets_log import (
    QueryBatch,
    done_batches,
    last_begun,
    state_bytes,
)
from tidemill.spark.pipelines.state import State
from tidemill.spark.source.rows import open_rows

_BATCHES = 10  # over which the rate is measured


@dataclass(frozen=True, slots=True)
class SinkStatus:
    """How far the query of a sink is."""

    sink: str
    url: str  # without a password
    last_batch: int | None  # that is done; None: none yet
    last_at: datetime | None  # when it was
    is_in_batch: bool  # whether one began that is not done; if nobody runs it, it is repeated
    lag: int | None  # rows that are not done; None: a source does not tell
    rows_per_s: float | None  # over the last batches; None: fewer than two
    state_bytes: int


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """How far a pipeline is."""

    pipeline: str
    state: str
    runner: int | None  # the process that runs it; 0: it does not tell; None: nobody
    sinks: list[SinkStatus]


@dataclass(frozen=True, slots=True)
class _Extent:
    """What a source holds now."""

    first: int
    next: int
    pointers: dict[str, int]


def status(pipeline: Pipeline, *, state: str | None = None) -> PipelineStatus:
    """Look; nothing is changed, and nobody is disturbed."""
    place = State.of(pipeline, state, is_remote=False)
    if place.folder is None:
        raise InvalidInput(
            f"the state of pipeline {pipeline.name} is at {place.location}; status reads it in a "
            "folder that this machine sees"
        )
    extents = _extents(pipeline)
    sinks = []
    for name, sink in pipeline.sinks.items():
        checkpoint = Path(place.checkpoint(name))
        begun = last_begun(checkpoint)
        done = done_batches(checkpoint, _BATCHES)
        last = done[-1] if done else None
        sinks.append(
            SinkStatus(
                sink=name,
                url=sink.shown,
                last_batch=None if last is None else last.number,
                last_at=None if last is None else datetime.fromtimestamp(last.done_s, UTC),
                is_in_batch=begun is not None and (last is None or begun > last.number),
                lag=_lag(extents, last, place.consumer(name)),
                rows_per_s=_rate(done),
                state_bytes=state_bytes(checkpoint),
            )
        )
    return PipelineStatus(pipeline.name, place.location, place.runner(), sinks)


def _extents(pipeline: Pipeline) -> list[_Extent] | None:
    found = []
    for source in pipeline.sources.values():
        if source.format != TIDEMILL:
            return None
        with open_rows(find(source.url), fail_on_loss=False) as rows:
            ends = rows.ends()
            found.append(_Extent(ends.first, ends.next, rows.consumers()))
    return found


def _lag(extents: list[_Extent] | None, last: QueryBatch | None, consumer: str) -> int | None:
    """Rows of all sources together: a checkpoint does not say which offset is whose."""
    if extents is None:
        return None
    if last is not None and last.ends is not None and len(last.ends) == len(extents):
        return max(0, sum(one.next for one in extents) - sum(last.ends))
    # A pointer trails the checkpoint by a batch.
    return sum(
        one.next - max(one.first, one.pointers.get(consumer, one.first - 1) + 1) for one in extents
    )


def _rate(done: list[QueryBatch]) -> float | None:
    if len(done) < 2 or done[0].ends is None or done[-1].ends is None:
        return None
    passed_s = done[-1].done_s - done[0].done_s
    return max(0, sum(done[-1].ends) - sum(done[0].ends)) / passed_s if passed_s > 0 else None
