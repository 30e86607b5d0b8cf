"""Sends: what a caller gives a publisher, as the payload of frames.

send(b"one")                      one row
send([b"one", b"two"])            a batch: bytes, dicts, or any table
send(message), send([message])    protobuf messages: whatever has `SerializeToString`
send([Sourced(1, 42, "web", b)])  rows that say where they come from, in the schema `SOURCED`
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import pyarrow as pa

from tidemill.batch import to_payload
from tidemill.batch.columns import column_from_values
from tidemill.errors import Bug, SchemaMismatch
from tidemill.files.receipt import Receipt
from tidemill.log.contract import LogFrame

# The payload of rows that say where they come from.
SOURCED = pa.schema(
    [
        pa.field("source_type", pa.int32(), nullable=False),
        pa.field("source_id", pa.int64(), nullable=False),
        pa.field("source_name", pa.utf8(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)


class Sourced(NamedTuple):
    """One row of a log with the schema `tm.SOURCED`; `value` is bytes, or a protobuf message.

    >>> import tidemill as tm
    >>> with tm.Log("memory:doc-sourced", schema=tm.SOURCED) as log:
    ...     receipt = log.publisher().send(tm.Sourced(1, 42, "web", b"hello"))
    ...     log.read(1).rows()
    [{'source_type': 1, 'source_id': 42, 'source_name': 'web', 'value': b'hello'}]
    """

    source_type: int
    source_id: int
    source_name: str
    value: Any


class Send:
    """One send on its way: its rows, and how it went."""

    __slots__ = (
        "count",
        "digest",
        "failure",
        "frames",
        "future",
        "generation",
        "is_done",
        "lane",
        "number",
        "order",
        "payload",
        "receipt",
        "size",
        "wakeup",
    )

    def __init__(
        self, payload: pa.RecordBatch, *, number: int | None = None, digest: bytes = b""
    ) -> None:
        self.payload = payload
        self.count: int = payload.num_rows
        self.size: int = payload.nbytes + 64  # so that sends of nothing are bounded as well
        self.frames: list[LogFrame] | None = None  # encoded already, if it shares them with nobody
        self.number = number
        self.digest = digest
        self.order = 0  # among the publisher's sends
        self.generation = 0  # of numbered sends: after one failed, those behind it must not pass
        self.receipt: Receipt | None = None
        self.failure: BaseException | None = None
        self.is_done = False
        self.future: Future[Receipt] | None = None
        self.wakeup: threading.Lock | None = None  # what a blocking sender sleeps on
        self.lane: int | None = None  # a lane that its sender was woken to use

    def wake(self) -> None:
        """Wake the sender, if it sleeps."""
        if self.wakeup is not None and self.wakeup.locked():
            self.wakeup.release()

    def conclude(self) -> None:
        """Tell the sender how it went."""
        self.is_done = True
        self.payload = self.frames = None
        if self.future is None:
            if self.wakeup is not None:
                self.wake()
        elif self.receipt is not None and self.failure is None:
            self.future.set_result(self.receipt)
        else:
            self.future.set_exception(self.failure or Bug("a send ended without a receipt"))


def payload_of(data: object, schema: pa.Schema) -> pa.RecordBatch:
    """What a caller sends, as rows in the schema of the log.

    >>> from tidemill.batch import DEFAULT
    >>> payload_of(b"one", DEFAULT).num_rows, payload_of([b"one", b"two"], DEFAULT).num_rows
    (1, 2)
    """
    if isinstance(data, (bytes, bytearray, memoryview, Mapping, Sourced)) or _is_message(data):
        data = [data]
    if isinstance(data, Iterator):
        data = list(data)
    if isinstance(data, (list, tuple)) and data:
        first = data[0]
        if isinstance(first, Sourced):
            data = _sourced(data, schema)
        elif _is_message(first):
            data = serialized(data)
    return to_payload(data, schema=schema)


def _is_message(data: object) -> bool:
    return hasattr(data, "SerializeToString")


def serialized(values: Sequence[Any]) -> list[bytes]:
    """Protobuf messages as bytes; the same ones always give the same."""
    try:
        return [
            value.SerializeToString(deterministic=True) if _is_message(value) else value
            for value in values
        ]
    except TypeError as cause:
        raise SchemaMismatch(f"a message cannot be serialized: {cause}") from cause


def _sourced(rows: Sequence[Any], schema: pa.Schema) -> object:
    """Sourced rows column by column."""
    if not all(isinstance(row, Sourced) for row in rows):
        raise SchemaMismatch("not every row is a Sourced: send them apart from others")
    if not set(SOURCED.names) <= set(schema.names):
        raise SchemaMismatch(
            "the log has no columns for where rows come from: make it with schema=tm.SOURCED"
        )
    kinds, ids, names, values = zip(*rows, strict=True)
    columns = [kinds, ids, names, serialized(values)]
    arrays = [
        column_from_values(column, field) for column, field in zip(columns, SOURCED, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SOURCED)
