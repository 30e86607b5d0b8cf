"""Batches large enough for Spark: many small ones become one, one that is too large several."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

CHUNK_ROWS = 64 * 1024  # below this, the cost of handing over a batch shows
CHUNK_ROWS_MAX = 256 * 1024
CHUNK_BYTES = 16 * 1024 * 1024
CHUNK_BYTES_MAX = 64 * 1024 * 1024


def chunks(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in the same order, in batches of a size that suits.

    >>> small = pa.record_batch({"n": [1, 2]})
    >>> [batch.num_rows for batch in chunks([small] * 3)]
    [6]
    """
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
            yield from _parts(_joined(waiting), size)
            waiting, rows, size = [], 0, 0
    if rows:
        yield from _parts(_joined(waiting), size)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _parts(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    parts = max(-(-batch.num_rows // CHUNK_ROWS_MAX), -(-size // CHUNK_BYTES_MAX))
    step = max(1, -(-batch.num_rows // max(parts, 1)))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)
