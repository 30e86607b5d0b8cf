"""The queue or log that is written to: found, or made if nothing is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from tidemill.errors import BucketMismatch, InvalidInput, NotAQueue
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.format.settings import QUEUE
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging.folder_staging import settings_of
from tidemill.files.staging.transaction import Staging
from tidemill.files.state.bucket import BucketFunction, choose
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.log.opening import open_store
from tidemill.spark.address import folder_of
from tidemill.spark.schema import check_distinct
from tidemill.spark.sink.checkpoint import has_written
from tidemill.spark.sink.columns import Columns
from tidemill.spark.sink.options import SinkOptions


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and which; plain, for it travels to the tasks."""

    address: str  # an absolute path, or a URL
    is_queue: bool
    is_on_server: bool
    columns: Columns

    @classmethod
    def prepare(cls, options: SinkOptions, schema: StructType) -> Target:
        """Find or make what is written to, and refuse rows that cannot be."""
        folder = folder_of(options.path)
        if folder is not None:
            return cls._in_folder(folder, options, schema)
        if options.kind == "queue":
            raise InvalidInput("a priority queue lives in a folder; on a server there are logs")
        return cls._on_server(options, schema)

    def staging(self, name: str) -> Staging:
        """What is staged there under a name."""
        if self.is_on_server:
            # Its driver is an extra, which who writes to folders does without.
            from tidemill.log.sql.staging import ServerStaging  # noqa: PLC0415

            return ServerStaging(self.address, name)
        if self.is_queue:
            return QueueStaging(Path(self.address), name, key=self.columns.key)
        return FileLogStaging(Path(self.address), name)

    @classmethod
    def _in_folder(cls, folder: Path, options: SinkOptions, schema: StructType) -> Target:
        try:
            settings = settings_of(LocalFileSystem(), folder, None)
            is_queue = settings.kind == QUEUE
            payload: pa.Schema | None = settings.versions.newest
            recorded: str | None = settings.bucket
        except NotAQueue as nothing:
            if folder.is_dir() and any(folder.iterdir()):
                raise
            _check_new(options, nothing)
            is_queue = options.kind == "queue"
            payload = recorded = None
        if payload is not None and options.kind not in (None, "queue" if is_queue else "log"):
            holds = "a priority queue" if is_queue else "a log"
            raise InvalidInput(f"{folder} holds {holds}, not a {options.kind}")
        columns = Columns.of(schema, queue=is_queue, key=options.key)
        bucket = _bucket(options, recorded, is_queue=is_queue)
        wanted = _wanted(columns, options, schema, payload, str(folder))
        if wanted is not payload:
            if is_queue:
                PriorityQueue(folder, schema=wanted, bucket=bucket).close()
            else:
                open_store(folder, schema=wanted).close()
        return cls(str(folder), is_queue, False, columns)

    @classmethod
    def _on_server(cls, options: SinkOptions, schema: StructType) -> Target:
        columns = Columns.of(schema, queue=False, key=options.key)
        _bucket(options, None, is_queue=False)
        try:
            with open_store(options.path, schema=None, create=False) as log:
                payload: pa.Schema | None = log.versions.newest
                place = log.place
        except NotAQueue as nothing:
            _check_new(options, nothing)
            payload, place = None, "the new log"
        wanted = _wanted(columns, options, schema, payload, place)
        if wanted is not payload:
            open_store(options.path, schema=wanted).close()
        return cls(options.path, False, True, columns)


def _check_new(options: SinkOptions, nothing: NotAQueue) -> None:
    """Refuse to make anew what a query has written to: that would be missing in silence."""
    if has_written(options.checkpoint):
        raise NotAQueue(
            f"the query of the checkpoint {options.checkpoint} has written before, and now nothing "
            f"is there ({nothing}): bring it back, or make an empty one to go on without what it "
            "held, or delete the checkpoint as well"
        ) from nothing


def _wanted(
    columns: Columns,
    options: SinkOptions,
    schema: StructType,
    payload: pa.Schema | None,  # of what is there; None: nothing is
    place: str,
) -> pa.Schema:
    """The payload's schema as it has to be: `payload` itself, unless it is to change.

    Rows are held against it before anything is made or changed, so that a refusal leaves no trace.
    """
    wanted = columns.payload(schema) if payload is None else payload
    if payload is not None and options.merge_schema:
        more = [field for field in columns.payload(schema) if field.name not in payload.names]
        # A column that keys alone are taken from is not part of the payload.
        more = [field for field in more if field.name != columns.key]
        for field in more:
            same = [name for name in payload.names if name.lower() == field.name.lower()]
            check_distinct((*same[:1], field.name), f"{place} would have", "rename the new one")
        wanted = pa.schema([*payload, *more]) if more else payload
    columns.check(schema, wanted, place)
    return wanted


def _bucket(options: SinkOptions, recorded: str | None, *, is_queue: bool) -> BucketFunction | None:
    """The bucket function that was asked for, which has to be that of a queue that is there."""
    if options.bucket is None:
        return None
    if not is_queue:
        raise InvalidInput("a log has no keys, and so no option bucket")
    try:
        function = choose(options.bucket, None)
    except BucketMismatch as error:
        raise InvalidInput(f"bucket is shift:BITS or width:KEYS, not {options.bucket!r}") from error
    return choose(recorded, function)
