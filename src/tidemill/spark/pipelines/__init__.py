"""Pipelines: a function from DataFrames to DataFrames, with queues at its ends, run by Spark.

ends           what it reads and writes
definition     the decorator, and what is checked when it is used
dead_letters   rows that it cannot take, with the reason
frames         the sources as DataFrames, and how sinks are written
outputs        from the sources' DataFrames to one for each sink
state          where its checkpoints are, and who may run it
belonging      whether those checkpoints are of these sources and sinks
run            a streaming query for each sink, watched and stopped
batch          everything at once, without a query
parquet        a folder of Parquet files as a sink
failures       what Spark says, as an error of ours; pure
loading        the pipelines in a file
offsets_log    what a checkpoint tells of its batches
status         how far a pipeline is, whoever runs it

    source ──▶ rules ──▶ function ──▶ query ──▶ sink            one query for each sink,
                 └── reason, row ──▶ query ──▶ dead letters     with a checkpoint of its own
"""

from tidemill.spark.pipelines.dead_letters import reject
from tidemill.spark.pipelines.definition import Pipeline, pipeline
from tidemill.spark.pipelines.ends import Sink, Source

__all__ = ["Pipeline", "Sink", "Source", "pipeline", "reject"]
