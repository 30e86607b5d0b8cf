"""Sends: what a caller gives a publisher, as the payload of frames.

send(b"one")                      one row
send([b"one", b"two"])            a batch: bytes, dicts, or any table
send(message), send([message])    protobuf messages: whatever has `SerializeToString`
send([Sourced(1, 42, "web", b)])  rows that say where they come from, in the schema `SOURCED`
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from tidemill.batch import to_payload
from tidemill.batch.columns import column_from_values
from tidemill.errors import SchemaMismatch
from tidemill.files.queue.receipt import Receipt
from tidemill.log.contract import LogFrame

if TYPE_CHECKING:
    from tidemill.log.turn import Turn

_SEND_BYTES = 64  # what a send counts for beside its rows
_OFFSET_BYTES = 4  # of each value in a column

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
    """One send on its way: its rows, and how it went.

    >>> Send(values=(b"a", b"b")).count
    2
    """

    __slots__ = (
        "count",
        "digest",
        "failure",
        "frames",
        "future",
        "generation",
        "is_done",
        "number",
        "order",
        "payload",
        "receipt",
        "size",
        "told_in",
        "turn",
        "values",
        "wakeup",
    )

    def __init__(
        self,
        payload: pa.RecordBatch | None = None,
        *,
        values: tuple[bytes, ...] = (),
        number: int | None = None,
        digest: bytes = b"",
    ) -> None:
        """The rows are those of `payload` or, without one, `values`."""
        self.payload = payload
        self.values = values
        # Sends of nothing have a size as well, so that they are bounded.
        if payload is None:
            self.count = len(values)
            self.size: int = sum(map(len, values)) + _OFFSET_BYTES * len(values) + _SEND_BYTES
        else:
            self.count = payload.num_rows
            self.size = payload.nbytes + _SEND_BYTES
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
        self.turn: Turn | None = None  # in which its sender writes, or was woken to write
        self.told_in: Turn | None = None  # in which it was written, or failed

    def wake(self) -> bool:
        """Wake the sender, if it sleeps; False if nobody waits for this send any more."""
        wakeup = self.wakeup
        if wakeup is None:
            return False
        if wakeup.locked():
            try:
                wakeup.release()
            except RuntimeError:
                pass  # Another thread has just done it.
        return True


def frames_of(
    group: Sequence[Send], encode: Callable[[Sequence[Send]], list[LogFrame]]
) -> list[LogFrame]:
    """The rows of a group as frames; small sends that follow each other share one."""
    frames: list[LogFrame] = []
    small: list[Send] = []
    for send in group:
        if send.frames is None:
            if send.count:
                small.append(send)
            continue
        if small:
            frames += encode(small)
            small = []
        frames += send.frames
    return frames + (encode(small) if small else [])


def takes_values(schema: pa.Schema) -> bool:
    """Whether a row is bytes and nothing else.

    >>> from tidemill.batch import DEFAULT
    >>> takes_values(DEFAULT), takes_values(SOURCED)
    (True, False)
    """
    return len(schema) == 1 and schema.field(0).type == pa.binary() and not schema.field(0).nullable


def plain_values(data: object, *, bytes_max: int) -> tuple[bytes, ...] | None:
    """The rows, if they are bytes and few: nothing has to be done about those one send at a time.

    >>> plain_values([b"one", b"two"], bytes_max=100), plain_values([b"one", "two"], bytes_max=100)
    ((b'one', b'two'), None)
    """
    if type(data) is bytes:
        values: tuple[bytes, ...] = (data,)
    elif type(data) is list and set(map(type, data)) == {bytes}:
        values = tuple(data)
    else:
        return None
    return values if sum(map(len, values)) <= bytes_max else None


def joined(sends: Sequence[Send], schema: pa.Schema) -> pa.RecordBatch:
    """The rows of sends one behind the other.

    >>> from tidemill.batch import DEFAULT
    >>> one, more = Send(payload_of([b"a"], DEFAULT)), [Send(values=(b"b",)), Send(values=(b"c",))]
    >>> joined([one, *more], DEFAULT)["value"].to_pylist()
    [b'a', b'b', b'c']
    """
    payloads: list[pa.RecordBatch] = []
    for are_values, run in groupby(sends, key=lambda send: send.payload is None):
        if are_values:
            rows = list(chain.from_iterable(send.values for send in run))
            payloads.append(to_payload(rows, schema=schema))
        else:
            payloads += [send.payload for send in run]
    return payloads[0] if len(payloads) == 1 else pa.concat_batches(payloads)


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
