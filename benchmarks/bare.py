"""What is left of a push and a pop when the queue is taken away: the calls into Arrow, NumPy,
xxHash and the system that any queue of checked Arrow batches in Python makes, and no more.

- push: compare the schema, validate, see that the keys are sorted, serialize, checksum, write
- pop: read, checksum, decode, write a take

It has no index, no locks, no recovery, nothing to choose from; it shows how much of the floor's
speed Python's calls alone leave.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from benchmarks import data
from benchmarks.settings import ITEMS_PER_BATCH
from tidemill.gateway.disk_floor import PIECE_BYTES

_HEAD = bytes(192)  # as long as an envelope and a header
_TAKE = bytes(128)


class Bare:
    """Takes turns at pushing batches and popping them all again, in order and without sync."""

    name = "bare calls"

    def __init__(self, folder: Path, *, batches: int) -> None:
        folder.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(folder / "data", flags, 0o600)
        self._batches = batches
        self._schema = data.ascending(0, 1).schema
        self._end = self._allocated = 0

    def turn(self) -> dict[str, float]:
        rows = [data.ascending(number * ITEMS_PER_BATCH) for number in range(self._batches)]
        items = self._batches * ITEMS_PER_BATCH
        start = time.perf_counter()
        places = [self._push(batch) for batch in rows]
        pushed = time.perf_counter()
        del rows
        middle = time.perf_counter()
        popped = sum([self._pop(*place).num_rows for place in places])
        pop_s = time.perf_counter() - middle
        if popped != items:
            raise RuntimeError(f"{items} items were pushed, but {popped} popped")
        return {"push": (pushed - start) / items, "pop": pop_s / items}

    def close(self) -> None:
        os.close(self._file)

    def _push(self, batch: pa.RecordBatch) -> tuple[int, int, int]:
        """Returns (place, bytes, checksum)."""
        if not batch.schema.equals(self._schema):
            raise RuntimeError("a batch has another schema")
        batch.validate(full=True)
        column = batch.column(0)
        keys = np.frombuffer(column.buffers()[1], np.int64, len(column))
        if np.count_nonzero(keys[1:] < keys[:-1]):
            raise RuntimeError("a batch is not sorted")
        body = batch.serialize()
        check = xxh3_64_intdigest(body)
        place = self._room(len(_HEAD) + len(body) + len(_TAKE))
        os.pwritev(self._file, [_HEAD, body], place)
        return place, len(body), check

    def _pop(self, place: int, length: int, check: int) -> pa.RecordBatch:
        buffer = pa.allocate_buffer(len(_HEAD) + length)
        os.preadv(self._file, [buffer], place)
        body = buffer.slice(len(_HEAD))
        if xxh3_64_intdigest(body) != check:
            raise OSError("the disk gave back other bytes than were written")
        batch = pa.ipc.read_record_batch(body, self._schema)
        os.pwrite(self._file, _TAKE, place + len(_HEAD) + length)
        return batch

    def _room(self, length: int) -> int:
        place = self._end
        self._end += length
        if self._end > self._allocated:
            os.posix_fallocate(self._file, self._allocated, PIECE_BYTES)
            self._allocated += PIECE_BYTES
        return place
