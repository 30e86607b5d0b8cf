"""The sources of a pipeline as DataFrames, and how its sinks are written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from tidemill.spark.pipelines.belonging import check_sources, consumers
from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.ends import TIDEMILL, Sink, Source
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.pipelines.outputs import outputs
from tidemill.spark.pipelines.state import State

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

# How far one batch of a query goes, which a batch that takes everything has no use for.
_OF_STREAMS = ("maxoffsetspertrigger", "minoffsetspertrigger", "maxtriggerdelay")
# … and how long a batch keeps what it reads of a queue, which a query has no use for.
_OF_BATCHES = ("snapshotseconds",)
_STARTS = ("startingoffsets", "startingtimestamp")


def is_remote(spark: SparkSession) -> bool:
    """Whether it is at a Spark Connect server, whose paths are its own."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def streams(
    pipeline: Pipeline, spark: SparkSession, state: State, sink: str
) -> dict[str, DataFrame]:
    """What the query of a sink writes, from streams that are its own."""
    check_sources(pipeline, state, sink)
    frames: dict[str, DataFrame] = {}
    for name, consumer in consumers(pipeline, state, sink).items():
        frames[name] = _load(pipeline, spark, name, consumer=consumer)
    return outputs(pipeline, frames)


def batches(pipeline: Pipeline, spark: SparkSession) -> dict[str, DataFrame]:
    """What each sink gets of everything that is there."""
    frames = {name: _load(pipeline, spark, name, consumer=None) for name in pipeline.sources}
    return outputs(pipeline, frames)


def start_query(
    frame: DataFrame,
    sink: Sink,
    *,
    name: str,
    checkpoint: str,
    transaction: str,
    trigger: dict[str, bool | str],
) -> StreamingQuery:
    """Begin to write a stream to a sink."""
    writer = frame.writeStream.queryName(name).outputMode("append").format(sink.format)
    writer = writer.options(**sink.options).option("checkpointLocation", checkpoint)
    if sink.format == TIDEMILL:
        writer = writer.option("txnAppId", transaction)
    elif sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    url = sink.url if is_remote(frame.sparkSession) else sink.folder or sink.url
    return writer.trigger(**trigger).start(url)  # type: ignore[arg-type]


def write_batch(
    frame: DataFrame, sink: Sink, *, transaction: str, number: int, run: str, replaces: bool
) -> None:
    """Write everything to a sink, once also if it is repeated."""
    url = sink.url if is_remote(frame.sparkSession) else sink.folder or sink.url
    options = dict(sink.options)
    if sink.format == TIDEMILL:
        writer = frame.write.format(sink.format).mode("append").options(**options)
        writer = writer.option("txnAppId", transaction).option("txnVersion", number)
        (writer.option("txnRun", run) if run else writer).save(url)
        return
    mode = "overwrite" if replaces else options.pop("mode", "error")
    writer = frame.write.format(sink.format).mode(mode).options(**options)
    (writer.partitionBy(*sink.partition_by) if sink.partition_by else writer).save(url)


def _load(pipeline: Pipeline, spark: SparkSession, name: str, consumer: str | None) -> DataFrame:
    source = pipeline.sources[name]
    options = _options(source, consumer)
    try:
        reader = spark.read if consumer is None else spark.readStream
        reader = reader.format(source.format).options(**options)
        if source.schema is not None:
            reader = reader.schema(source.schema)
        return reader.load(source.url if is_remote(spark) else _full(source))
    except PySparkException as error:
        raise failed(error, pipeline.name, None, f"its source {name}") from error


def _options(source: Source, consumer: str | None) -> dict[str, str]:
    options = dict(source.options)
    if source.format != TIDEMILL:
        return options
    if consumer is None:
        return {name: text for name, text in options.items() if name.lower() not in _OF_STREAMS}
    options = {name: text for name, text in options.items() if name.lower() not in _OF_BATCHES}
    if not any(name.lower() in _STARTS for name in options):
        options["startingOffsets"] = "earliest"
    return {**options, "consumer": consumer}


def _full(source: Source) -> str:
    """A relative path as this process has it: Spark's Java stays where it was started."""
    place = Sink(source.url).folder
    return source.url if place is None else place
