"""The pipeline of the main job, end to end: windows, an archive and bad rows, from one log.

The peers run the function and the rules of the same pipeline between other ends, as one query for
each sink, too. Between ends that cost nothing (batches that lie ready in memory-mapped files, and
Spark's noop in place of our sinks) all the time is Spark's: what ours takes more is our share of
it. Between Spark's own ends (Parquet files, noop) no row passes through Python at all.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import tidemill as tm
from benchmarks import local_spark
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from tidemill.gateway.main_job.readings import HEARTBEAT_NS, Readings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.spark import Pipeline

_OURS = "pipeline"
_READY = "batches that lie ready, rows dropped"
_PARQUET = "Parquet files, rows dropped"
_ROWS_PER_SEND = 100_000
_PAYLOAD = pa.schema(
    [
        ("measured_ns", pa.int64()),
        ("device", pa.int32()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)


def run(settings: Settings) -> list[Result]:
    if (reason := local_spark.missing()) is not None:
        return [Result("spark pipeline", None, "rows/s", note=reason)]
    with local_spark.running(settings.folder) as spark:
        return measure(spark, settings)


def measure(spark: SparkSession, settings: Settings) -> list[Result]:
    rows = 4 * 10**4 if settings.quick else 4 * 10**6
    with tempfile.TemporaryDirectory(dir=settings.folder) as name:
        folder = Path(name)
        pipeline = _pipeline(folder)
        _fill(folder / "readings", rows)
        # The same rows, with their numbers and times, as Parquet files and as files of Arrow.
        frame = local_spark.ours(spark, folder / "readings")
        frame.write.parquet(str(folder / "parquet"))
        trigger_rows = int(pipeline.sources["readings"].options["maxOffsetsPerTrigger"])
        batches = _lay_ready(folder, trigger_rows)
        contestants: list[Contestant] = [
            Ours(spark, folder, pipeline, rows),
            Peer(_READY, folder, pipeline, lambda: _ready(spark, frame, folder, batches), rows),
            Peer(_PARQUET, folder, pipeline, lambda: _files(spark, frame, folder), rows),
        ]
        medians = interleave("spark pipeline", contestants, settings.rounds)
    return _judge({name: metrics["row"] for name, metrics in medians.items()}, rows)


class Ours:
    """The pipeline of the main job, over all that is there."""

    name = _OURS

    def __init__(self, spark: SparkSession, folder: Path, pipeline: Pipeline, rows: int) -> None:
        self._spark = spark
        self._folder = folder
        self._pipeline = pipeline
        self._rows = rows

    def turn(self) -> Mapping[str, float]:
        start = time.perf_counter()
        done = self._pipeline.run(self._spark, once=True)
        seconds = time.perf_counter() - start
        found = {name: sink.rows for name, sink in done.items()}
        if set(found.values()) != {self._rows}:
            raise RuntimeError(f"the pipeline read {found} rows, not {self._rows} for each sink")
        for name in (*(sink.url for sink in self._pipeline.sinks.values()), "windows.state"):
            shutil.rmtree(self._folder / name)
        # The next turn begins with the first row.
        with tm.Log(self._folder / "readings") as log:
            for consumer in log.consumers():
                log.remove_consumer(consumer)
        return {"row": seconds / self._rows}

    def close(self) -> None:
        pass


class Peer:
    """The same function between other ends."""

    def __init__(
        self,
        name: str,
        folder: Path,
        pipeline: Pipeline,
        read: Callable[[], DataFrame],
        rows: int,
    ) -> None:
        self.name = name
        self._folder = folder
        self._pipeline = pipeline
        self._read = read
        self._rows = rows
        self._turns = count()

    def turn(self) -> Mapping[str, float]:
        from tidemill.spark.pipelines.outputs import outputs

        folder = self._folder / f"turn-{next(self._turns)}"
        start = time.perf_counter()
        queries = []
        for name, sink in self._pipeline.sinks.items():
            frame = outputs(self._pipeline, {"readings": self._read()})[name]
            form = "parquet" if sink.format == "parquet" else "noop"
            writer = frame.writeStream.format(form).trigger(availableNow=True)
            writer = writer.option("checkpointLocation", str(folder / "checkpoints" / name))
            queries.append(writer.start(str(folder / name)))
        for query in queries:
            query.awaitTermination()
        seconds = time.perf_counter() - start
        for query in queries:
            found = sum(one.numInputRows for one in query.recentProgress)
            if found != self._rows:
                raise RuntimeError(f"{self.name} gave {found} rows, not {self._rows}")
        shutil.rmtree(folder)
        return {"row": seconds / self._rows}

    def close(self) -> None:
        pass


def _pipeline(folder: Path) -> Pipeline:
    """That of the main job, as it is run: from a copy of its file in the folder of the data."""
    from tidemill.spark.pipelines.loading import load

    found = find_spec("tidemill.gateway.main_job.pipeline")
    if found is None or found.origin is None:
        raise RuntimeError("the pipeline of the main job is not there")
    (pipeline,) = load(Path(shutil.copy(found.origin, folder))).values()
    return pipeline


def _fill(folder: Path, rows: int) -> None:
    """The readings of the main job as its merge leaves them, in the order of time."""
    readings = Readings(rows - 1)
    with tm.Log(folder, schema=_PAYLOAD) as log, log.publisher() as out:
        for start in range(0, rows - 1, _ROWS_PER_SEND):
            numbers = np.arange(start, min(start + _ROWS_PER_SEND, rows - 1))
            columns = readings.table(numbers).drop_columns(["ts"])
            times = pa.array(readings.keys(numbers))
            out.send_soon(columns.add_column(0, "measured_ns", times).cast(_PAYLOAD))
        # Long after all others, as in the main job: all windows are over.
        heartbeat = readings.heartbeat(0).drop_columns(["ts"])
        out.send(heartbeat.add_column(0, "measured_ns", pa.array([HEARTBEAT_NS])).cast(_PAYLOAD))


def _lay_ready(folder: Path, trigger_rows: int) -> int:
    """Files of Arrow, one for each micro-batch; returns how many there are."""
    ready = folder / "ready"
    ready.mkdir()
    with tm.Log(folder / "readings") as log:
        first, after = log.ends()
        starts = range(first, after, trigger_rows)
        for number, start in enumerate(starts):
            table = log.read(start, rows_max=min(trigger_rows, after - start)).to_arrow()
            with pa.ipc.new_file(ready / f"{number}.arrow", table.schema) as file:
                for at in range(0, table.num_rows, _ROWS_PER_SEND):
                    file.write(table.slice(at, _ROWS_PER_SEND))
    return len(starts)


def _ready(spark: SparkSession, like: DataFrame, folder: Path, batches: int) -> DataFrame:
    reader = spark.readStream.format("ready").option("batches", batches)
    return reader.schema(like.schema).load(str(folder / "ready"))


def _files(spark: SparkSession, like: DataFrame, folder: Path) -> DataFrame:
    # Spark wrote a file for each task of ours, which reads as many rows as a micro-batch has.
    reader = spark.readStream.schema(like.schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "parquet"))


def _judge(row_s: Mapping[str, float], rows: int) -> list[Result]:
    conditions = {
        **local_spark.CONDITIONS,
        "rows": "readings of the main job: a time, a device, a metric, a value",
        "operation": f"{rows:,} rows to three sinks, a query each; starting them included",
    }
    share = max(0.0, 1 - row_s[_READY] / row_s[_OURS])
    return [
        Result(
            "spark pipeline, the main job",
            1 / row_s[_OURS],
            "rows/s",
            1 / row_s[peer],
            peer,
            note=f"{share:.0%} of the time is ours, the rest Spark's" if peer == _READY else "",
            conditions=conditions,
        )
        for peer in (_READY, _PARQUET)
    ]
