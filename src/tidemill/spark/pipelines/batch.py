"""Everything at once: a pipeline as a batch, which reads its sources from the start each time.

A sink in a queue or a log gets the whole result, once for each run; a run that was killed is
finished by the next one, under its number, so that sinks it had written are not written again. A
folder of Parquet files is to be new, or is replaced if the sink says so: `mode="overwrite"`.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.pipelines.frames import batches, is_remote, write_batch
from tidemill.spark.pipelines.parquet import check_empty, is_seen
from tidemill.spark.pipelines.run import SinkProgress
from tidemill.spark.pipelines.state import BatchRun, Hold, State
from tidemill.spark.session import session


def run_batch(
    pipeline: Pipeline, spark: SparkSession | None, *, state: str | None
) -> dict[str, SinkProgress]:
    """Run it over all that is there now."""
    spark = session(pipeline.name) if spark is None else spark
    place = State.of(pipeline, state, is_remote=is_remote(spark))
    hold = Hold(place, spark)
    try:
        run = place.batch()
        if set(run.done) >= set(pipeline.sinks):
            run = BatchRun(run.number + 1, name=run.name)
        frames = batches(pipeline, spark)
        if place.folder is not None:
            for name, sink in pipeline.sinks.items():
                if name not in run.begun:
                    check_empty(sink)
        for name, sink in pipeline.sinks.items():
            if name in run.done:
                continue
            if name not in run.begun:
                run = replace(run, begun=(*run.begun, name))
                place.note_batch(run)
            try:
                write_batch(
                    frames[name],
                    sink,
                    transaction=place.transaction(name, kind="batch"),
                    number=run.number,
                    run=run.name,
                    # It was looked at: what is there now is what this run left when it was killed.
                    replaces=place.folder is not None and is_seen(sink),
                )
            except PySparkException as error:
                raise failed(error, pipeline.name, name) from error
            run = replace(run, done=(*run.done, name))
            place.note_batch(run)
    finally:
        hold.release()
    return {
        name: SinkProgress(batches=1, written=None, last_batch=run.number)
        for name in pipeline.sinks
    }
