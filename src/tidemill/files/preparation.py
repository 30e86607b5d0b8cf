"""From what a caller pushes to frames: keys and payload side by side, sorted, split at bucket
boundaries, encoded.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.batch import (
    ReadyForm,
    SchemaVersions,
    encode_body,
    int64_array,
    join_body,
    to_rows,
)
from tidemill.clock import Clock
from tidemill.files.bucket import BucketFunction, Custom, split
from tidemill.files.draft import PreparedFrame
from tidemill.files.operation import GivenRows, PushOne, PushTogether
from tidemill.limits import SHARED_FRAME_ITEM_BYTES_MAX


class Preparation:
    """What a queue does to rows before they can be written."""

    def __init__(self, versions: SchemaVersions, bucket: BucketFunction, clock: Clock) -> None:
        self._payload_schema = versions.newest
        self._fingerprint = versions.newest_fingerprint
        self._bucket = bucket
        self._clock = clock
        self._ready = ReadyForm(versions.body(versions.newest_fingerprint, carried=False))

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
            order = np.argsort(keys, kind="stable")
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

    def together(self, members: list[PushOne]) -> PushTogether:
        """Several pushes of one row as one operation."""
        if len(members) == 1:
            return PushTogether(members, self.frames(members[0].rows), [0])
        keys = np.concatenate([member.rows.keys for member in members])
        body = pa.concat_batches([member.rows.body for member in members])
        ranks = np.empty(len(members), np.int64)
        ranks[np.argsort(keys, kind="stable")] = np.arange(len(members))
        return PushTogether(members, self.frames(GivenRows(keys, body)), ranks.tolist())
