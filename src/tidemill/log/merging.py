"""Small batches given together: a frame may hold one row, which is not worth a batch."""

from __future__ import annotations

from tidemill.batch import LogBatch
from tidemill.limits import MIB

_MERGED_BYTES = MIB  # frames smaller than this are given together


def merge_small(batches: list[LogBatch]) -> list[LogBatch]:
    """Batches that follow each other, small ones together, so that each is worth its while.

    >>> merge_small([LogBatch.of([b"a"]), LogBatch.of([b"b"], first_seq=2)])
    [<LogBatch of 2 rows, 1 to 2, columns value>]
    """
    merged: list[LogBatch] = []
    small: list[LogBatch] = []
    size = 0
    for batch in batches:
        if size + batch.payload.nbytes > _MERGED_BYTES and small:
            merged.append(LogBatch.concat(small))
            small, size = [], 0
        small.append(batch)
        size += batch.payload.nbytes
    return [*merged, LogBatch.concat(small)] if small else merged
