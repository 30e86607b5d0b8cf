"""The first rows of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def first_rows(batches: Iterable[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """The batches up to so many rows; all of them without a limit.

    >>> rows = pa.record_batch({"n": [1, 2, 3]})
    >>> [batch.num_rows for batch in first_rows([rows, rows], 4)]
    [3, 1]
    """
    left = limit
    if left == 0:
        return
    for batch in batches:
        if left is None:
            yield batch
            continue
        part = batch.slice(0, min(left, batch.num_rows))
        yield part
        left -= part.num_rows
        if not left:
            return
