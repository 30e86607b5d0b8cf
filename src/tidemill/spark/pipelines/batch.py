"""Everything at once: a pipeline as a batch, which reads its sources from the start each time.

A sink in a queue or a log gets the whole result, once for each run; a run that was killed is
finished by the next one, under its number, so that sinks it had written are not written again.
"""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.pipelines.frames import batches, is_remote, write_batch
from tidemill.spark.pipelines.run import SinkProgress
from tidemill.spark.pipelines.state import Hold, State
from tidemill.spark.session import session


def run_batch(
    pipeline: Pipeline, spark: SparkSession | None, *, state: str | None
) -> dict[str, SinkProgress]:
    """Run it over all that is there now."""
    spark = session(pipeline.name) if spark is None else spark
    place = State.of(pipeline, state, is_remote=is_remote(spark))
    hold = Hold(place, spark)
    try:
        number, done = place.batch()
        if place.folder is not None and set(done) >= set(pipeline.sinks):
            number, done = number + 1, []
        frames = batches(pipeline, spark)
        place.note_batch(number, done)
        for name, sink in pipeline.sinks.items():
            if name in done:
                continue
            transaction = place.transaction(name, kind="batch")
            try:
                write_batch(frames[name], sink, transaction=transaction, number=number)
            except PySparkException as error:
                raise failed(error, pipeline.name, name) from error
            done = [*done, name]
            place.note_batch(number, done)
    finally:
        hold.release()
    return {
        name: SinkProgress(batches=1, written=None, last_batch=number) for name in pipeline.sinks
    }
