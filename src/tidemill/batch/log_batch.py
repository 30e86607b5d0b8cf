"""What a log gives back: rows with dense numbers, in the order in which they were sent.

A row of a log has no key. Its body is the payload alone, its number follows from that of the first
row, and its time is that of its frame; so a batch costs nothing beyond the references it holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.batch import Batch, frame_of, stream_of, values_of
from tidemill.batch.frame import SEQ_FIELD, TIME_FIELD, int64_array
from tidemill.batch.rows import to_rows
from tidemill.errors import Bug, InvalidInput, SchemaMismatch


@dataclass(frozen=True, slots=True)
class LogItem:
    """One row of a log: `value` is the payload, bytes by default, a dict of the columns otherwise.

    >>> LogBatch.of([b"a"]).first.seq
    1
    """

    seq: int
    value: Any
    time: datetime


class LogBatch:
    """Rows of a log, as Arrow columns; what receivers and `Log.read` give.

    >>> batch = LogBatch.of([b"a", b"b"], first_seq=7)
    >>> len(batch), batch.rows(), batch.seqs.to_pylist(), batch.last_seq
    (2, [b'a', b'b'], [7, 8], 8)
    >>> batch.to_arrow().schema.names
    ['seq', 'time', 'value']
    >>> batch
    <LogBatch of 2 rows, 7 to 8, columns value>
    """

    __slots__ = ("_seqs", "_times", "first_seq", "payload")

    def __init__(self, payload: pa.RecordBatch, first_seq: int, times: int | pa.Array) -> None:
        """`times` is that of all rows in µs, or an array with one for each."""
        self.payload = payload  # the payload's columns alone
        self.first_seq = first_seq
        self._times = times
        self._seqs: pa.Array | None = None

    @classmethod
    def of(
        cls, data: object, *, schema: pa.Schema | None = None, first_seq: int = 1, time_us: int = 0
    ) -> LogBatch:
        """A batch of rows in any form that a send takes, for tests and examples.

        >>> LogBatch.of([{"city": "Ghent"}]).rows()
        [{'city': 'Ghent'}]
        """
        return cls(to_payload(data, schema=schema), first_seq, time_us)

    @classmethod
    def empty(cls, payload: pa.Schema, first_seq: int) -> LogBatch:
        """The batch of no rows, in front of `first_seq`.

        >>> len(LogBatch.empty(pa.schema([("n", pa.int32())]), 5))
        0
        """
        columns = [pa.nulls(0, field.type) for field in payload]
        return cls(pa.RecordBatch.from_arrays(columns, schema=payload), first_seq, 0)

    @classmethod
    def concat(cls, batches: Sequence[LogBatch]) -> LogBatch:
        """Batches of one schema that follow one another, as one.

        >>> LogBatch.concat([LogBatch.of([b"a"]), LogBatch.of([b"b"], first_seq=2)]).rows()
        [b'a', b'b']
        """
        if len(batches) == 1:
            return batches[0]
        if not batches:
            raise Bug("there is no schema in an empty list of batches")
        for one, other in pairwise(batches):
            if other.first_seq != one.next_seq:
                raise Bug(
                    f"rows from {other.first_seq} on do not follow those up to {one.last_seq}"
                )
        payload = pa.concat_batches([batch.payload for batch in batches])
        return cls(payload, batches[0].first_seq, _joined_times(batches))

    def __len__(self) -> int:
        return int(self.payload.num_rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows())

    def __repr__(self) -> str:
        # Numbers and names only: payloads do not belong in logs.
        columns = ", ".join(self.schema.names)
        if not len(self):
            return f"<{type(self).__name__} of 0 rows, columns {columns}>"
        rows = "1 row" if len(self) == 1 else f"{len(self)} rows"
        numbers = f"{self.first_seq} to {self.last_seq}"
        return f"<{type(self).__name__} of {rows}, {numbers}, columns {columns}>"

    @property
    def schema(self) -> pa.Schema:
        """The schema of the payload."""
        return self.payload.schema

    @property
    def last_seq(self) -> int:
        """The number of the last row; that before `first_seq` if there is none."""
        return self.first_seq + len(self) - 1

    @property
    def next_seq(self) -> int:
        """The number of the row behind the last."""
        return self.first_seq + len(self)

    @property
    def seqs(self) -> pa.Array:
        """The sequence numbers, int64."""
        if self._seqs is None:
            self._seqs = int64_array(np.arange(self.first_seq, self.next_seq))
        return self._seqs

    @property
    def times(self) -> pa.Array:
        """When each row was written, timestamp[us, UTC]."""
        if isinstance(self._times, int):
            return int64_array(np.full(len(self), self._times), TIME_FIELD.type)
        return self._times

    @property
    def values(self) -> pa.Array:
        """The column `value` if the payload is that alone, else a struct of its columns."""
        return values_of(self.payload)

    @property
    def first(self) -> LogItem | None:
        """The first row, None if there is none."""
        return self._item(0) if len(self) else None

    @property
    def last(self) -> LogItem | None:
        """The last row, None if there is none."""
        return self._item(len(self) - 1) if len(self) else None

    def _item(self, index: int) -> LogItem:
        one = LogBatch.slice(self, index, 1)
        return LogItem(one.first_seq, one.rows()[0], one.times[0].as_py())

    def rows(self) -> list[Any]:
        """The payloads, which a send takes as they are; a typed one is a dict.

        >>> LogBatch.of([b"a"]).rows()
        [b'a']
        """
        try:
            if self.schema.names == ["value"]:
                return self.payload.column(0).to_pylist()
            return self.payload.to_pylist()
        except (OverflowError, ValueError) as cause:
            raise InvalidInput(
                f"Python cannot hold a date or time of this batch, use to_arrow(): {cause}"
            ) from cause

    def slice(self, offset: int, length: int | None = None) -> LogBatch:
        """Some of the rows, without a copy.

        >>> LogBatch.of([b"a", b"b"]).slice(1).seqs.to_pylist()
        [2]
        """
        times = self._times
        if not isinstance(times, int):
            times = times.slice(offset, length)
        return LogBatch(self.payload.slice(offset, length), self.first_seq + offset, times)

    def to_arrow(self) -> pa.RecordBatch:
        """A record batch with the columns seq, time and the payload's.

        >>> LogBatch.of([b"a"]).to_arrow().num_columns
        3
        """
        return self.payload.add_column(0, TIME_FIELD, self.times).add_column(
            0, SEQ_FIELD, self.seqs
        )

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the columns seq, time and the payload's.

        >>> list(LogBatch.of([b"a"]).to_pandas().columns)
        ['seq', 'time', 'value']
        """
        return frame_of(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The batch for anything that speaks Arrow: polars, DuckDB, pandas."""
        return stream_of(self.to_arrow(), requested_schema)


def _joined_times(batches: Sequence[LogBatch]) -> int | pa.Array:
    times = [batch._times for batch in batches]
    if not all(isinstance(time_us, int) for time_us in times):
        return pa.concat_arrays([batch.times for batch in batches])
    if len(set(times)) == 1:
        return times[0]
    rows = [len(batch) for batch in batches]
    return int64_array(np.repeat(np.array(times, dtype=np.int64), rows), TIME_FIELD.type)


def to_payload(data: object, *, schema: pa.Schema | None) -> pa.RecordBatch:
    """What a caller sends, as the payload's columns; `schema` is the log's, None takes the data's.

    Rows of a log have no key, so that a key would be lost: rows that bring one are refused. What a
    queue gave is taken as it is, without its keys.

    >>> to_payload([b"a", b"b"], schema=None).num_rows
    2
    >>> to_payload([(1, b"a")], schema=None)
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: a log has no keys: send the payloads alone, or put the key \
into a column of another name
    """
    rows = to_rows(data.payload if isinstance(data, Batch) else data, schema=schema)
    if rows.keys is not None:
        raise SchemaMismatch(
            "a log has no keys: send the payloads alone, or put the key into a column of "
            "another name"
        )
    return rows.payload
