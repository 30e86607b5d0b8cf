"""What a queue gives back: an immutable set of items.

A batch is a frame's body as it was decoded, plus where its seqs and times come from: two numbers
of the header (`first_seq` and `time_us`, the common case), or the columns `seq` and `time` of a
carried body. Everything else is made when it is asked for, so a batch costs nothing beyond the
references it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.frame import (
    SEQ_FIELD,
    TIME_FIELD,
    body_schema,
    int64_array,
    join_body,
)
from tidemill.batch.pairs import FEW_ROWS, Pairs, is_plain, make_pairs
from tidemill.batch.rows import to_rows
from tidemill.errors import InvalidInput, MissingExtra, SchemaMismatch, TooLarge


@dataclass(frozen=True, slots=True)
class Item:
    """One item: `value` is the payload, bytes by default, a dict of the columns in a typed queue.

    >>> Batch.of([(3, b"c")]).first.value
    b'c'
    """

    key: int
    value: Any
    seq: int
    time: datetime


class Batch:
    """Items in order, as Arrow columns; what `pop`, `peek`, `read` and receivers give.

    >>> batch = Batch.of([(1, b"a"), (3, b"c")])
    >>> len(batch), batch.rows(), batch.keys.to_pylist(), batch.last.key
    (2, [(1, b'a'), (3, b'c')], [1, 3], 3)
    >>> batch.to_arrow().schema.names
    ['seq', 'key', 'time', 'value']
    >>> batch
    <Batch of 2 items, keys 1 to 3, columns value>
    """

    __slots__ = (
        "_first_seq",
        "_length",
        "_pairs",
        "_part",
        "_payload",
        "_seqs",
        "_start",
        "_time_us",
        "_times",
        "_whole",
    )

    def __init__(
        self,
        body: pa.RecordBatch,
        first_seq: int | None = None,
        time_us: int | None = None,
        *,
        part: tuple[int, int] | None = None,  # the rows from the first to behind the second
        pairs: Pairs | None = None,  # of the body, shared by all of its parts
    ) -> None:
        """Wrap a decoded body, or a part of it, whose first row has `first_seq`. Without
        `first_seq` and `time_us` the body must be a carried one.
        """
        self._whole = body
        self._first_seq = first_seq
        self._time_us = time_us
        self._pairs = pairs
        if part is None:
            self._start, self._length = 0, body.num_rows
            self._part: pa.RecordBatch | None = body
        else:
            self._start = part[0]
            self._length = part[1] - part[0]
            self._part = None
        self._payload: pa.RecordBatch | None = None
        self._seqs: pa.Array | None = None
        self._times: pa.Array | None = None

    @property
    def _body(self) -> pa.RecordBatch:
        if self._part is None:
            self._part = self._whole.slice(self._start, self._length)
        return self._part

    @classmethod
    def of(
        cls, data: object, *, schema: pa.Schema | None = None, first_seq: int = 1, time_us: int = 0
    ) -> Batch:
        """A batch of rows in any form that a push takes, for tests and examples.

        >>> Batch.of([(5, {"city": "Ghent"})]).rows()
        [(5, {'city': 'Ghent'})]
        """
        rows = to_rows(data, schema=schema)
        keys = np.zeros(len(rows), np.int64) if rows.keys is None else rows.keys
        return cls(join_body(keys, rows.payload), first_seq, time_us)

    @classmethod
    def empty(cls, payload: pa.Schema) -> Batch:
        """The batch of no items.

        >>> len(Batch.empty(pa.schema([("n", pa.int32())])))
        0
        """
        schema = body_schema(payload, carried=False)
        columns = [pa.nulls(0, field.type) for field in schema]
        return cls(pa.RecordBatch.from_arrays(columns, schema=schema), 0, 0)

    @classmethod
    def concat(cls, batches: Sequence[Batch]) -> Batch:
        """The items of several batches of one schema, one after another.

        >>> later = Batch.of([(1, b"b")], first_seq=9)
        >>> Batch.concat([Batch.of([(1, b"a")]), later]).seqs.to_pylist()
        [1, 9]
        """
        if not batches:
            raise InvalidInput("no batches have no schema; Batch.empty(schema) has one and no rows")
        full = [batch for batch in batches if len(batch)] or [batches[0]]
        if len(full) == 1:
            return full[0]
        next_seq, time_us = full[0]._first_seq, full[0]._time_us
        for batch in full:
            if next_seq is None or batch._first_seq != next_seq or batch._time_us != time_us:
                return cls(put_together([batch.carried() for batch in full]))
            next_seq += len(batch)
        return cls(put_together([batch._body for batch in full]), full[0]._first_seq, time_us)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return iter(self.rows())

    def __repr__(self) -> str:
        # Keys and names only: payloads do not belong in logs.
        count = len(self)
        if not count:
            return f"<Batch of 0 items, columns {', '.join(self.schema.names)}>"
        low, high = self.keys[0].as_py(), self.keys[count - 1].as_py()
        items = "1 item" if count == 1 else f"{count} items"
        return f"<Batch of {items}, keys {low} to {high}, columns {', '.join(self.schema.names)}>"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the payload."""
        return self.payload.schema

    @property
    def payload(self) -> pa.RecordBatch:
        """The payload's columns alone."""
        if self._payload is None:
            payload = self._body.remove_column(0)
            if self._first_seq is None:
                payload = payload.remove_column(1).remove_column(0)
            self._payload = payload
        return self._payload

    @property
    def keys(self) -> pa.Array:
        """The keys, int64."""
        return self._body.column(0)

    @property
    def seqs(self) -> pa.Array:
        """The sequence numbers, int64."""
        if self._seqs is None:
            if self._first_seq is None:
                self._seqs = self._body.column(1)
            else:
                self._seqs = int64_array(np.arange(self._first_seq, self._first_seq + len(self)))
        return self._seqs

    @property
    def times(self) -> pa.Array:
        """When each item was written, timestamp[us, UTC]."""
        if self._times is None:
            if self._time_us is None:
                self._times = self._body.column(2)
            else:
                self._times = int64_array(np.full(len(self), self._time_us), TIME_FIELD.type)
        return self._times

    @property
    def values(self) -> pa.Array:
        """The column `value` if the payload is that alone, else a struct of its columns."""
        return values_of(self.payload)

    @property
    def first(self) -> Item | None:
        """The first item, None if there is none."""
        return self._item(0) if len(self) else None

    @property
    def last(self) -> Item | None:
        """The last item, None if there is none."""
        return self._item(len(self) - 1) if len(self) else None

    def _item(self, index: int) -> Item:
        one = self.slice(index, 1)
        key, value = one.rows()[0]
        return Item(key, value, one.seqs[0].as_py(), one.times[0].as_py())

    def rows(self) -> list[tuple[int, Any]]:
        """The items as (key, value) pairs, which a push takes as they are; a typed value is a dict.

        >>> Batch.of([(1, b"a")]).rows()
        [(1, b'a')]
        """
        if self._pairs is not None and 0 < self._length <= FEW_ROWS:
            found = self._pairs.part(self._start, self._start + self._length)
            if found is not None:
                return found
        body = self._body
        # What is in front of the payload: the key, and perhaps seq and time. To take a batch apart
        # is to let go of the interpreter, which costs a thread its turn where many pop.
        at = 1 if self._first_seq is not None else 3
        try:
            if is_plain(body, at):
                return make_pairs(body, at)
            values = self.payload.to_pylist()
        except (OverflowError, ValueError) as cause:
            raise InvalidInput(
                f"Python cannot hold a date or time of this batch, use to_arrow(): {cause}"
            ) from cause
        return list(zip(self.keys.to_pylist(), values, strict=True))

    def slice(self, offset: int, length: int | None = None) -> Batch:
        """Some of the items, without a copy.

        >>> Batch.of([(1, b"a"), (2, b"b")]).slice(1).seqs.to_pylist()
        [2]
        """
        first = self._first_seq
        body = self._body.slice(offset, length)
        return Batch(body, None if first is None else first + offset, self._time_us)

    def carried(self) -> pa.RecordBatch:
        """The body with seq and time as columns of its own.

        >>> Batch.of([(1, b"a")]).carried().schema.names
        ['key', 'seq', 'time', 'value']
        """
        if self._first_seq is None:
            return self._body
        return join_body(self.keys, self.payload, seqs=self.seqs, times=self.times)

    def uncarried(self) -> pa.RecordBatch:
        """The body without seqs and times: what a push would make of the items.

        >>> Batch.of([(1, b"a")]).uncarried().schema.names
        ['key', 'value']
        """
        if self._first_seq is None:
            return join_body(self.keys, self.payload)
        return self._body

    def to_arrow(self) -> pa.RecordBatch:
        """A record batch with the columns seq, key, time and the payload's.

        >>> Batch.of([(1, b"a")]).to_arrow().num_columns
        4
        """
        body = self._body
        if self._first_seq is None:
            return body.select([1, 0, *range(2, body.num_columns)])
        return body.add_column(0, SEQ_FIELD, self.seqs).add_column(2, TIME_FIELD, self.times)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the columns seq, key, time and the payload's.

        >>> list(Batch.of([(1, b"a")]).to_pandas().columns)
        ['seq', 'key', 'time', 'value']
        """
        return frame_of(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batch for anything that speaks Arrow: polars, DuckDB, pandas."""
        return stream_of(self.to_arrow(), requested_schema)


def put_together(
    bodies: list[pa.RecordBatch], memory_pool: pa.MemoryPool | None = None
) -> pa.RecordBatch:
    """The rows of several bodies of one schema, one after another.

    >>> body = pa.record_batch({"key": [1]})
    >>> put_together([body, body]).num_rows
    2
    """
    try:
        return pa.concat_batches(bodies, memory_pool=memory_pool)
    except pa.ArrowInvalid as cause:
        if any(not body.schema.equals(bodies[0].schema) for body in bodies):
            raise SchemaMismatch(
                f"only batches of one schema can be put together: {cause}"
            ) from cause
        raise TooLarge(
            "so many items do not fit into one batch, for Arrow ends a column of it at 2 GiB: ask "
            "for fewer at a time, or scan"
        ) from cause


def values_of(payload: pa.RecordBatch) -> pa.Array:
    """The column `value` if the payload is that alone, else a struct of its columns.

    >>> values_of(pa.record_batch({"value": [b"a"]})).to_pylist()
    [b'a']
    """
    if payload.schema.names == ["value"]:
        return payload.column(0)
    return payload.to_struct_array()


def frame_of(batch: pa.RecordBatch) -> Any:
    """The rows as a pandas DataFrame.

    >>> len(frame_of(pa.record_batch({"n": [1, 2]})))
    2
    """
    try:
        return batch.to_pandas()
    except ImportError as cause:
        raise MissingExtra("pandas is not installed: pip install pandas") from cause


def stream_of(batch: pa.RecordBatch, requested_schema: object = None) -> object:
    """The rows for anything that speaks Arrow: a PyCapsule with a stream of them.

    >>> type(stream_of(pa.record_batch({"n": [1, 2]}))).__name__
    'PyCapsule'
    """
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch])
    return reader.__arrow_c_stream__(requested_schema)
