"""From what a caller pushes to frames: keys and payload side by side, sorted, split at bucket
boundaries, encoded.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np
import pyarrow as pa

from tidemill.batch import (
    PlainForm,
    PlainRow,
    ReadyForm,
    SchemaVersions,
    encode_body,
    int64_array,
    join_body,
    stable_order,
    to_rows,
)
from tidemill.clock import Clock
from tidemill.files.commit.operation import GivenRows, PushOne, PushTogether
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.state.bucket import BucketFunction, Custom, split
from tidemill.limits import SHARED_FRAME_ITEM_BYTES_MAX


class Preparation:
    """What a queue does to rows before they can be written."""

    def __init__(self, versions: SchemaVersions, bucket: BucketFunction, clock: Clock) -> None:
        self._payload_schema = versions.newest
        self._fingerprint = versions.newest_fingerprint
        self._bucket = bucket
        self._clock = clock
        schema = versions.body(versions.newest_fingerprint, carried=False)
        self._ready = ReadyForm(schema)
        self._plain = PlainForm(schema)
        self._schema = schema

    def given(self, data: object, key: str | None = None) -> GivenRows | PlainRow:
        """What the caller gave; one small item of bytes, which may share a frame, as it is."""
        if key is None and not isinstance(self._bucket, Custom):
            row = self._plain.row_of(data, self._clock.time_ns)
            if row is not None:
                return row
        return self.rows(data, key)

    def rows(self, data: object, key: str | None = None) -> GivenRows:
        """What the caller gave, in the order given."""
        if key is None and (keys := self._ready.keys_of(data)) is not None:
            return GivenRows(keys, data)
        rows = to_rows(data, schema=self._payload_schema, key=key)
        keys = rows.keys
        if keys is None:
            keys = np.full(len(rows), self._clock.time_ns(), np.int64)
        return GivenRows(keys, join_body(keys, rows.payload))

    def frames(self, rows: GivenRows) -> list[PreparedFrame]:
        """The rows as frames, in the order of their keys, equal keys in the order given."""
        keys, body = rows
        if np.count_nonzero(keys[1:] < keys[:-1]):
            order = stable_order(keys)
            keys, body = keys[order], body.take(int64_array(order))
        key_min, key_max = keys.item(0), keys.item(-1)
        bucket = self._bucket.of(key_min)
        if bucket == self._bucket.of(key_max):
            return [PreparedFrame(bucket, encode_body(body), key_min, key_max, self._fingerprint)]
        return [
            PreparedFrame(
                bucket,
                encode_body(body.slice(start, stop - start)),
                keys.item(start),
                keys.item(stop - 1),
                self._fingerprint,
            )
            for bucket, start, stop in split(keys, self._bucket)
        ]

    def may_share(self, rows: GivenRows) -> bool:
        """Whether a single row may share a frame with rows of others: only if it cannot spoil
        theirs.
        """
        return (
            len(rows.keys) == 1
            and rows.body.get_total_buffer_size() <= SHARED_FRAME_ITEM_BYTES_MAX
            # A key that the user's own function refuses must fail alone.
            and not isinstance(self._bucket, Custom)
        )

    def frame_of_one(self, row: GivenRows | PlainRow) -> list[PreparedFrame]:
        """The frame of a single row."""
        return [self._plain_frame([row])] if isinstance(row, PlainRow) else self.frames(row)

    def together(self, members: list[PushOne]) -> PushTogether:
        """Several pushes of one row as one operation."""
        plain = [member.row for member in members if isinstance(member.row, PlainRow)]
        if len(plain) == len(members):
            order = sorted(range(len(plain)), key=[row.key for row in plain].__getitem__)
            frames = self._plain_frames([plain[index] for index in order])
            ranks = [0] * len(order)
            for rank, index in enumerate(order):
                ranks[index] = rank
            return PushTogether(members, frames, ranks)
        given = [
            self.rows([member.row]) if isinstance(member.row, PlainRow) else member.row
            for member in members
        ]
        keys = np.concatenate([rows.keys for rows in given])
        # Each says in its own way which columns may hold nulls.
        bodies = [
            pa.RecordBatch.from_arrays(rows.body.columns, schema=self._schema) for rows in given
        ]
        body = pa.concat_batches(bodies)
        places = np.empty(len(members), np.int64)
        places[np.argsort(keys, kind="stable")] = np.arange(len(members))
        return PushTogether(members, self.frames(GivenRows(keys, body)), places.tolist())

    def _plain_frames(self, rows: list[PlainRow]) -> list[PreparedFrame]:
        """Sorted plain rows as frames, one for each bucket."""
        by_bucket = groupby(rows, lambda row: self._bucket.of(row.key))
        return [self._plain_frame(list(group)) for _, group in by_bucket]

    def _plain_frame(self, rows: list[PlainRow]) -> PreparedFrame:
        low, high = rows[0].key, rows[-1].key
        body = self._plain.encode(rows)
        return PreparedFrame(self._bucket.of(low), body, low, high, self._fingerprint)
