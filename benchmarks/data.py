"""Items to push: fresh random bytes each time, made before any clock starts."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES

Pairs: TypeAlias = list[tuple[int, bytes]]

BUCKET_KEYS = 2**37  # neighbouring keys that share a bucket of the default function

_random = np.random.default_rng()


def batch(keys: NDArray[np.int64]) -> pa.RecordBatch:
    """A batch of these keys, each with a value of random bytes."""
    count = len(keys)
    offsets = np.arange(0, (count + 1) * VALUE_BYTES, VALUE_BYTES, dtype=np.int32)
    values = pa.BinaryArray.from_buffers(
        pa.binary(),
        count,
        [None, pa.py_buffer(offsets), pa.py_buffer(_random.bytes(count * VALUE_BYTES))],
    )
    # Not by pyarrow.array, which imports pandas wherever it is installed: memory is measured too.
    found = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(keys)])
    return pa.RecordBatch.from_arrays([found, values], names=["key", "value"])


def ascending(start: int, count: int = ITEMS_PER_BATCH) -> pa.RecordBatch:
    """Keys from `start` on, one after the other."""
    return batch(np.arange(start, start + count, dtype=np.int64))


def scattered(buckets: int = 1, count: int = ITEMS_PER_BATCH, *, start: int = 0) -> pa.RecordBatch:
    """Random keys, unsorted, all over so many buckets from `start` on."""
    return batch(_random.integers(start, start + buckets * BUCKET_KEYS, count, dtype=np.int64))


def delays(count: int, most: int) -> NDArray[np.int64]:
    """Random numbers below `most`."""
    return _random.integers(0, most, count, dtype=np.int64)


def pairs(rows: pa.RecordBatch) -> Pairs:
    """The same as Python objects."""
    return list(zip(rows.column(0).to_pylist(), rows.column(1).to_pylist(), strict=True))


def to_arrow(rows: Pairs) -> pa.RecordBatch:
    """Python objects as Arrow."""
    keys, values = zip(*rows, strict=True)
    return pa.record_batch(
        [pa.array(keys, pa.int64()), pa.array(values, pa.binary())], names=["key", "value"]
    )


def shuffled(count: int) -> list[int]:
    """The numbers below `count` in random order."""
    order: list[int] = _random.permutation(count).tolist()
    return order


def random_bytes(count: int) -> bytes:
    return _random.bytes(count)
