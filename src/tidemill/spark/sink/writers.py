"""What Spark calls: `write` in tasks, `commit` and `abort` at the driver.

Spark pickles a writer and sends it to the tasks. A batch is committed by a copy of the same one, a
streaming batch by a writer that is made anew, so that nothing is kept in between but what was
staged, and no lock is held.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from tidemill.errors import Bug, InvalidInput, TidemillError
from tidemill.files.staging.transaction import Outcome, StagedPart, Transaction, run_of
from tidemill.spark.sink.checkpoint import query_id, sync_batch
from tidemill.spark.sink.columns import check_names
from tidemill.spark.sink.options import SinkOptions
from tidemill.spark.sink.parts import stage
from tidemill.spark.sink.target import Target

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """What a task tells the driver."""

    part: StagedPart


Messages = Sequence[WriterCommitMessage | None]


class _Job:
    """What both writers do."""

    def __init__(self, target: Target, name: str) -> None:
        self._target = target
        self._name = name

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        chosen = self._target.columns.chosen
        return Staged(stage(self._target, self._name, (chosen(batch) for batch in iterator)))

    def _commit(self, transaction: Transaction | None, messages: Messages) -> Outcome:
        parts = [message.part for message in messages if isinstance(message, Staged)]
        if len(parts) < len(messages):
            raise Bug(f"{len(messages) - len(parts)} tasks did not say what they staged")
        return self._target.staging(self._name).commit(transaction, parts)

    def _abort(self) -> None:
        try:
            self._target.staging(self._name).sweep()
        except TidemillError as error:
            # What is to be told is why the job failed. The next commit sweeps as well.
            logger.warning("staged rows were not swept away: %s", error)


class BatchWriter(_Job, DataSourceArrowWriter):
    """One write of a DataFrame."""

    def __init__(self, target: Target, name: str, transaction: Transaction | None) -> None:
        super().__init__(target, name)
        self._transaction = transaction

    def commit(self, messages: Messages) -> None:
        self._commit(self._transaction, messages)

    def abort(self, messages: Messages) -> None:  # noqa: ARG002
        self._abort()


class StreamWriter(_Job, DataSourceStreamArrowWriter):
    """The batches of a streaming query; the staging has the name of its transaction."""

    def __init__(self, target: Target, name: str, run: bytes, location: str | None) -> None:
        super().__init__(target, name)
        self._run = run
        self._location = location

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        sync_batch(self._location, batchId)
        self._commit(Transaction(self._name, batchId, run=self._run), messages)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: ARG002, N803
        self._abort()


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """The writer of `df.write.format("tidemill").mode("append").save(path)`."""
    parsed = SinkOptions.parse(options, streaming=False)
    _check_mode(overwrite)
    check_names(parsed, schema)
    target = Target.prepare(parsed, schema)
    return BatchWriter(target, f".{uuid.uuid4().hex}", parsed.transaction)


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """The writer of `df.writeStream.format("tidemill").start(path)`."""
    parsed = SinkOptions.parse(options, streaming=True)
    _check_mode(overwrite)
    check_names(parsed, schema)
    name = parsed.app_id or query_id(parsed.checkpoint)
    run = b"" if parsed.app_id is None else _run_of(parsed.checkpoint)
    return StreamWriter(Target.prepare(parsed, schema), name, run, parsed.checkpoint)


def _run_of(checkpoint: str | None) -> bytes:
    """The query whose batches these are, so that the first one of another, whose checkpoint began
    anew, is not taken for this one's again.
    """
    try:
        return run_of(query_id(checkpoint))
    except InvalidInput as error:
        logger.debug("the numbers of batches alone tell repetitions: %s", error)
        return b""


def _check_mode(overwrite: bool) -> None:
    if overwrite:
        raise InvalidInput(
            "what was written to a queue or a log stays: use the mode append, not overwrite or "
            "complete"
        )
