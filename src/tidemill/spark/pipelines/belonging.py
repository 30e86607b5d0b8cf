"""Whether the state of a pipeline is that of its sources and sinks.

A checkpoint holds numbers alone: up to which row each source is read, and how many batches the sink
has. Held against other sources, or a sink that is further, they would leave rows out in silence.
"""

from __future__ import annotations

from pathlib import Path

from tidemill.errors import InvalidPipeline, NotAQueue, TransactionRewound
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging.transaction import Staging
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.spark.address import find, folder_of
from tidemill.spark.pipelines.definition import Pipeline
from tidemill.spark.pipelines.ends import TIDEMILL
from tidemill.spark.pipelines.offsets_log import last_begun
from tidemill.spark.pipelines.state import State
from tidemill.spark.source.rows import open_rows


def consumers(pipeline: Pipeline, state: State, sink: str) -> dict[str, str]:
    """As whom the query of a sink reads each source."""
    found: dict[str, str] = {}
    places: set[str] = set()
    for name, source in pipeline.sources.items():
        consumer = state.consumer(sink)
        if source.place in places:
            # Read a second time: two with one name would fence each other.
            consumer = f"{consumer}.{name}"
        places.add(source.place)
        found[name] = consumer
    return found


def check_sources(pipeline: Pipeline, state: State, sink: str) -> None:
    """Raise if the sources are others than those that the checkpoint of a sink is of: their rows
    would be left out up to the numbers in it.

    A query is a consumer of what it reads, from before its first batch. It may read some of the
    sources alone; so they are others if it is known to none.
    """
    begun = None if state.folder is None else last_begun(state.folder / sink)
    known = consumers(pipeline, state, sink)
    for name, consumer in known.items():
        source = pipeline.sources[name]
        options = {key.lower(): value.lower() for key, value in source.options.items()}
        if begun is None or source.format != TIDEMILL or options.get("failondataloss") == "false":
            return
        with open_rows(find(source.url), fail_on_loss=False) as rows:
            if consumer in rows.consumers():
                return
    places = ", ".join(source.shown for source in pipeline.sources.values())
    raise InvalidPipeline(
        f"the state {state.location} is of other sources than {places}, where nobody knows the "
        f"consumer {', '.join(known.values())}: rows would be left out that were never read. "
        "Give the pipeline a new name or another state; if the consumer was removed, go on with "
        "failOnDataLoss=False"
    )


def check_sink(pipeline: Pipeline, state: State, sink: str) -> None:
    """Raise if the sink has a batch that its checkpoint does not know, as of a backup: the batch
    that gets its number would be taken for that one.

    A checkpoint without any batch is left to the sink, which knows what begins anew.
    """
    target = pipeline.sinks[sink]
    begun = None if state.folder is None else last_begun(state.folder / sink)
    if begun is None or target.format != TIDEMILL:
        return
    transaction = state.transaction(sink)
    try:
        mark = _staging(target.url, transaction).seen(transaction)
    except NotAQueue:
        return  # It is gone, and Spark's first batch says so.
    if mark is not None and mark.number > begun:
        raise TransactionRewound(
            f"batches up to {mark.number} of pipeline {pipeline.name} were written to "
            f"{target.shown}, and the checkpoint {state.checkpoint(sink)} knows of those up to "
            f"{begun}: bring it back, or give the pipeline a new name and another sink",
            last=mark.number,
        )


def _staging(url: str, name: str) -> Staging:
    address = find(url)
    folder = folder_of(url)
    if folder is None:
        # Its driver is an extra, which who writes to folders does without.
        from tidemill.log.sql.staging import ServerStaging  # noqa: PLC0415

        return ServerStaging(url, name)
    return (QueueStaging if address.kind == "queue" else FileLogStaging)(Path(folder), name)
