"""The floor: the least that a durable queue on this disk has to do for the same bytes. Whatever
measures the queue sets its figures against it: `tidemill bench`, and the benchmarks.

- push: one pwrite of a fresh buffer as long as our frame (+ one fdatasync), into a file that is
  preallocated in pieces of 64 MiB as our segments are.
- pop: one pread of those bytes and their xxh3 checksum (+ one pwrite of 128 bytes in place and one
  fdatasync: a durable pop has to persist where it stands).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from xxhash import xxh3_64_intdigest

PIECE_BYTES = 64 * 1024 * 1024
POSITION_BYTES = 128

_random = np.random.default_rng()
# macOS has neither: a file grows as it is written, and fsync has to do.
_sync_data = getattr(os, "fdatasync", os.fsync)
_allocate = getattr(os, "posix_fallocate", None)


class Floor:
    """Takes turns at writing buffers and reading them back."""

    name = "floor"

    def __init__(
        self,
        folder: Path,
        *,
        write_bytes: int,
        writes: int,  # per turn
        items: int = 1,  # in each write, for the rate
        sync: bool,
        in_order: bool = True,  # False: read back in another order than written
    ) -> None:
        if write_bytes <= 0 or writes <= 0:
            raise ValueError(f"a floor of {writes} writes of {write_bytes} bytes measures nothing")
        folder.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._data = os.open(folder / "data", flags, 0o600)
        self._position = os.open(folder / "position", flags, 0o600)
        os.pwrite(self._position, bytes(4096), 0)
        os.fsync(self._position)
        self._write_bytes = write_bytes
        self._writes = writes
        self._items = items
        self._sync = sync
        self._in_order = in_order
        self._end = 0
        self._allocated = 0
        self._allocate()

    def turn(self) -> dict[str, float]:
        buffers = [_random.bytes(self._write_bytes) for _ in range(self._writes)]
        checks = [xxh3_64_intdigest(buffer) for buffer in buffers]
        places = [self._end + number * self._write_bytes for number in range(self._writes)]
        order = np.arange(self._writes)
        if not self._in_order:
            _random.shuffle(order)
        items = self._writes * self._items
        push_s = self._write(buffers)
        pop_s, persist_s = self._read(
            [places[at] for at in order], [checks[at] for at in order], persist=self._sync
        )
        return {
            "push": push_s / items,
            "pop": (pop_s + persist_s) / items,
            "pop without persisting": pop_s / items,
        }

    def close(self) -> None:
        os.close(self._data)
        os.close(self._position)

    def _write(self, buffers: Sequence[bytes]) -> float:
        data, sync, length = self._data, self._sync, self._write_bytes
        start = time.perf_counter()
        for buffer in buffers:
            if self._end + length > self._allocated:
                self._allocate()
            os.pwrite(data, buffer, self._end)
            if sync:
                _sync_data(data)
            self._end += length
        return time.perf_counter() - start

    def _read(
        self, places: Sequence[int], checks: Sequence[int], *, persist: bool
    ) -> tuple[float, float]:
        """Seconds for reading and checking, and for persisting the position."""
        data, position, length = self._data, self._position, self._write_bytes
        record = _random.bytes(POSITION_BYTES)
        read_s = persist_s = 0.0
        clock = time.perf_counter
        for place, check in zip(places, checks, strict=True):
            start = clock()
            if xxh3_64_intdigest(os.pread(data, length, place)) != check:
                raise OSError("the disk gave back other bytes than were written")
            middle = clock()
            if persist:
                os.pwrite(position, record, 0)
                _sync_data(position)
                persist_s += clock() - middle
            read_s += middle - start
        return read_s, persist_s

    def _allocate(self) -> None:
        if _allocate is not None:
            _allocate(self._data, self._allocated, PIECE_BYTES)
        self._allocated += PIECE_BYTES
