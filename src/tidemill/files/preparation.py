"""From what a caller pushes to frames: keys and payload side by side, sorted, split at bucket boundaries, encoded."""

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
from tidemill.files.bucket import BucketFunction, Custom, Keys, split
from tidemill.files.operation import PreparedFrame, PushOne, PushTogether
from tidemill.limits import SHARED_FRAME_ITEM_BYTES_MAX


class Preparation:
    """What a queue does to rows before they can be written."""

    def __init__(self, versions: SchemaVersions, bucket: BucketFunction, clock: Clock) -> None:
        self._payload_schema = versions.newest
        self._fingerprint = versions.newest_fingerprint
        self._bucket = bucket
        self._clock = clock
        self._ready = ReadyForm(versions.body(versions.newest_fingerprint, carried=False))

    def rows(self, data: object, key: str | None = None) -> tuple[Keys, pa.RecordBatch]:
        """(keys, rows as the body of a frame holds them), in the order given."""
        if key is None and (keys := self._ready.keys_of(data)) is not None:
            return keys, data
        rows = to_rows(data, schema=self._payload_schema, key=key)
        keys = rows.keys
        if keys is None:
            keys = np.full(len(rows), self._clock.time_ns(), np.int64)
        return keys, join_body(keys, rows.payload)

    def frames(self, keys: Keys, body: pa.RecordBatch) -> list[PreparedFrame]:
        """The rows as frames, in the order of their keys, equal keys in the order given."""
        if len(keys) > 1 and not (keys[1:] >= keys[:-1]).all():
            order = np.argsort(keys, kind="stable")
            body, keys = body.take(int64_array(order)), keys[order]
        mark = self._fingerprint
        key_min, key_max = keys.item(0), keys.item(-1)
        bucket = self._bucket.of(key_min)
        if bucket == self._bucket.of(key_max):
            return [PreparedFrame(bucket, encode_body(body), key_min, key_max, mark)]
        return [
            PreparedFrame(
                bucket,
                encode_body(body.slice(start, stop - start)),
                keys.item(start),
                keys.item(stop - 1),
                mark,
            )
            for bucket, start, stop in split(keys, self._bucket)
        ]

    def may_share(self, body: pa.RecordBatch) -> bool:
        """Whether a single row may share a frame with rows of others: only if it cannot spoil theirs."""
        return (
            body.get_total_buffer_size() <= SHARED_FRAME_ITEM_BYTES_MAX
            # A key that the user's own function refuses must fail alone.
            and not isinstance(self._bucket, Custom)
        )

    def together(self, members: list[PushOne]) -> PushTogether:
        """Several pushes of one row as one operation."""
        if len(members) == 1:
            return PushTogether(members, self.frames(members[0].keys, members[0].body), [0])
        keys = np.concatenate([member.keys for member in members])
        body = pa.concat_batches([member.body for member in members])
        ranks = np.empty(len(members), np.int64)
        ranks[np.argsort(keys, kind="stable")] = np.arange(len(members))
        return PushTogether(members, self.frames(keys, body), ranks.tolist())
