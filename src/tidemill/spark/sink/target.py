"""The queue or log that is written to: found, or made if nothing is there."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql.types import StructType

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.bucket import choose
from tidemill.files.filesystem import LocalFileSystem
from tidemill.files.folder_staging import settings_of
from tidemill.files.priority_queue import PriorityQueue
from tidemill.files.queue_staging import QueueStaging
from tidemill.files.settings import QUEUE
from tidemill.files.transaction import Staging
from tidemill.log.contract import LogStore
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.log.opening import open_store
from tidemill.spark.sink.columns import Columns
from tidemill.spark.sink.options import SinkOptions

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.ASCII)
_SERVERS = ("mysql", "mariadb")


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
        found = _SCHEME.match(options.path)
        if found and found[1] in _SERVERS:
            if options.kind == "queue":
                raise InvalidInput("a priority queue lives in a folder; on a server there are logs")
            return cls._on_server(options, schema)
        if found and found[1] != "file":
            raise InvalidInput(f"{found[1]}: cannot be written to: give a folder or mysql://")
        return cls._in_folder(options, schema)

    def staging(self, name: str) -> Staging:
        """What is staged there under a name."""
        if self.is_on_server:
            # Its driver is an extra, which who writes to folders does without.
            from tidemill.log.mysql.staging import MySQLStaging  # noqa: PLC0415

            return MySQLStaging(self.address, name)
        if self.is_queue:
            return QueueStaging(Path(self.address), name, key=self.columns.key)
        return FileLogStaging(Path(self.address), name)

    @classmethod
    def _in_folder(cls, options: SinkOptions, schema: StructType) -> Target:
        # Tasks have a working directory of their own.
        address = os.path.abspath(re.sub(r"^file:(//)?", "", options.path))
        try:
            settings = settings_of(LocalFileSystem(), Path(address), None)
            is_queue = settings.kind == QUEUE
            payload: pa.Schema | None = settings.versions.newest
        except NotAQueue:
            if os.path.isdir(address) and os.listdir(address):
                raise
            is_queue = options.kind == "queue"
            payload = None
        if payload is not None and options.kind not in (None, "queue" if is_queue else "log"):
            holds = "a priority queue" if is_queue else "a log"
            raise InvalidInput(f"{address} holds {holds}, not a {options.kind}")
        columns = Columns.of(schema, queue=is_queue, key=options.key)
        if payload is None or (payload := _merged(columns, options, schema, payload)) is not None:
            wanted = columns.payload(schema) if payload is None else payload
            if is_queue:
                bucket = None if options.bucket is None else choose(options.bucket, None)
                PriorityQueue(address, schema=wanted, bucket=bucket).close()
            else:
                open_store(address, schema=wanted).close()
        settings = settings_of(LocalFileSystem(), Path(address), None)
        columns.check(schema, settings.versions.newest, address)
        return cls(address, is_queue, False, columns)

    @classmethod
    def _on_server(cls, options: SinkOptions, schema: StructType) -> Target:
        columns = Columns.of(schema, queue=False, key=options.key)
        with _opened(options, columns, schema) as log:
            columns.check(schema, log.versions.newest, log.place)
        return cls(options.path, False, True, columns)


def _merged(
    columns: Columns, options: SinkOptions, schema: StructType, payload: pa.Schema
) -> pa.Schema | None:
    """The payload's schema with the columns that it gains; None if there are none."""
    if not options.merge_schema:
        return None
    more = [field for field in columns.payload(schema) if field.name not in payload.names]
    # A column that keys alone are taken from is not part of the payload.
    more = [field for field in more if field.name != columns.key]
    return pa.schema([*payload, *more]) if more else None


def _opened(options: SinkOptions, columns: Columns, schema: StructType) -> LogStore:
    try:
        log = open_store(options.path, schema=None, create=False)
    except NotAQueue:
        return open_store(options.path, schema=columns.payload(schema))
    merged = _merged(columns, options, schema, log.versions.newest)
    if merged is None:
        return log
    log.close()
    return open_store(options.path, schema=merged)
