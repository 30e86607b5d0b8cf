"""Run a pipeline over rows, in a test: between real ends, in a folder that is gone after it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import SparkSession

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.log.log import Log
from tidemill.spark.address import find
from tidemill.spark.pipelines.definition import DEAD_LETTERS, Pipeline
from tidemill.spark.pipelines.ends import PARQUET, Sink, Source
from tidemill.spark.session import session

Rows: TypeAlias = Sequence[Mapping[str, Any]] | Sequence[bytes] | pa.Table


@dataclass(frozen=True, slots=True)
class Tried:
    """What a pipeline wrote."""

    sinks: dict[str, list[dict[str, Any]]]  # the rows of each, in the order of writing

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the one sink that is not for dead letters."""
        outputs = [name for name in self.sinks if name != DEAD_LETTERS]
        if len(outputs) != 1:
            raise InvalidInput(f"there are several sinks: {', '.join(outputs)}; use sinks[…]")
        return self.sinks[outputs[0]]

    @property
    def dead_letters(self) -> list[dict[str, Any]]:
        """The dead letters; none if the pipeline has no place for them."""
        return self.sinks.get(DEAD_LETTERS, [])


def try_out(
    pipeline: Pipeline,
    rows: Rows | Mapping[str, Rows],  # of the one source, or of each by its name
    *,
    spark: SparkSession | None = None,
    once: bool = False,  # as a stream that ends, instead of as a batch
) -> Tried:
    """Run a pipeline over rows, and return what it writes. Nothing of its own ends is touched.

    Dicts with a `key` are pushed to a priority queue, all other rows are sent to a log.

    >>> from tidemill.spark import pipeline, session
    >>> from tidemill.spark.testing import try_out
    >>> @pipeline(source="orders/", sink="large/", dead_letters="bad/",
    ...           rules={"no amount": "amount IS NOT NULL"})
    ... def large(orders):
    ...     return orders.where("amount >= 100")
    >>> spark = session(master="local[1]")
    >>> tried = try_out(large, [{"amount": 5}, {"amount": 500}, {"amount": None}], spark=spark)
    >>> tried.rows
    [{'amount': 500}]
    >>> [letter["reason"] for letter in tried.dead_letters]
    ['no amount']
    >>> spark.stop()
    """
    given = rows if isinstance(rows, Mapping) else {next(iter(pipeline.sources)): rows}
    if set(given) != set(pipeline.sources):
        raise InvalidInput(
            f"rows are given for {', '.join(given)}, and the sources of pipeline {pipeline.name} "
            f"are {', '.join(pipeline.sources)}"
        )
    folder = Path(tempfile.mkdtemp(prefix="tidemill-try-"))
    try:
        trial = _in_folder(pipeline, given, folder)
        trial.run(session(pipeline.name) if spark is None else spark, once=once, batch=not once)
        return Tried({name: _read(sink) for name, sink in trial.sinks.items()})
    finally:
        shutil.rmtree(folder)


def _in_folder(pipeline: Pipeline, given: Mapping[str, Rows], folder: Path) -> Pipeline:
    """The same pipeline between ends in a folder."""
    sources = {}
    for name, source in pipeline.sources.items():
        place = folder / "sources" / name
        _fill(place, given[name])
        sources[name] = Source(place, rules=source.rules, **source.options)
    sinks = {
        name: Sink(
            folder / "sinks" / name,
            format=sink.format,
            partition_by=sink.partition_by,
            **sink.options,
        )
        for name, sink in pipeline.sinks.items()
    }
    return Pipeline(
        pipeline.function,
        name=pipeline.name,
        sources=sources,
        sinks=sinks,
        state=str(folder / "state"),
    )


def _fill(place: Path, rows: Rows) -> None:
    place.parent.mkdir(exist_ok=True)
    table = rows if isinstance(rows, pa.Table) else _table(rows)
    if "key" in table.column_names:
        with PriorityQueue(place, schema=table.drop_columns(["key"]).schema) as queue:
            queue.push(table)
        return
    with Log(place, schema=table.schema) as log, log.publisher() as out:
        out.send(table)


def _table(rows: Sequence[Any]) -> pa.Table:
    if all(isinstance(row, bytes) for row in rows):
        return pa.table({"value": pa.array(rows, pa.binary())})
    return pa.Table.from_pylist([dict(row) for row in rows])


def _read(sink: Sink) -> list[dict[str, Any]]:
    if sink.format == PARQUET:
        return parquet.read_table(sink.url).to_pylist() if Path(sink.url).is_dir() else []
    try:
        address = find(sink.url)
    except NotAQueue:
        return []  # A stream without a row makes nothing.
    if address.kind == "queue":
        with PriorityQueue(sink.url, read_only=True) as queue:
            table = queue.peek(-1).to_arrow()
        return table.drop_columns(["seq", "time"]).to_pylist()
    with Log(sink.url) as log:
        first, after = log.ends()
        table = log.read(first, rows_max=max(after - first, 1)).to_arrow()
    return table.drop_columns(["seq", "time"]).to_pylist()
