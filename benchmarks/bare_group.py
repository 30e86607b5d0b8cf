"""What is left of durable pushes of single items by many threads when the queue is taken away: a
group commit that packs, checksums, writes and syncs, and nothing else.

Whoever finds nobody writing writes all that wait, wakes their threads, and lets the first of those
lead who came meanwhile. There are no keys to sort, no frames, no index, no room to look after, and
nothing to recover from; it shows how much of a peer's speed sleeping, waking and Python's lock
leave to a queue whose threads share a sync.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from threading import Lock

from xxhash import xxh3_64_intdigest

from benchmarks import data
from benchmarks.settings import VALUE_BYTES
from benchmarks.together import together
from tidemill.gateway.disk_floor import PIECE_BYTES

_ROW = struct.Struct(f"<q{VALUE_BYTES}s")
_HEAD = struct.Struct("<QQ")


class _Waiting:
    """A row, and what its thread sleeps on."""

    __slots__ = ("is_done", "row", "wakeup")

    def __init__(self, row: bytes) -> None:
        self.row = row
        self.wakeup = Lock()
        self.wakeup.acquire()
        self.is_done = False


class BareGroup:
    """Takes turns at committing rows, each thread one at a time."""

    name = "bare group commit"

    def __init__(self, folder: Path, *, threads: int, items: int) -> None:
        folder.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._file = os.open(folder / "data", flags, 0o600)
        os.posix_fallocate(self._file, 0, PIECE_BYTES)
        self._end = 0
        self._threads = threads
        self._items = items  # of each thread
        self._mutex = Lock()
        self._waiting: list[_Waiting] = []
        self._is_led = False

    def turn(self) -> dict[str, float]:
        values = [data.random_bytes(VALUE_BYTES) for _ in range(self._items)]

        def push(number: int) -> None:
            for key, value in enumerate(values, number * self._items):
                self._push(key, value)

        start = self._end
        items = self._threads * self._items
        seconds = together(push, self._threads)
        if self._end - start < items * _ROW.size:
            raise RuntimeError(f"{items} rows were pushed, but fewer written")
        return {"push": seconds / items}

    def close(self) -> None:
        os.close(self._file)

    def _push(self, key: int, value: bytes) -> None:
        mine = _Waiting(_ROW.pack(key, value))
        with self._mutex:
            self._waiting.append(mine)
            leads = not self._is_led
            self._is_led = True
        if not leads:
            mine.wakeup.acquire()
            if mine.is_done:
                return
        with self._mutex:
            group, self._waiting = self._waiting, []
        self._write(group)
        for one in group:
            one.is_done = True
        with self._mutex:
            following = self._waiting[0] if self._waiting else None
            self._is_led = following is not None
        if following is not None:
            following.wakeup.release()
        for one in group:
            if one is not mine:
                one.wakeup.release()

    def _write(self, group: list[_Waiting]) -> None:
        body = b"".join([one.row for one in group])
        head = _HEAD.pack(len(body), xxh3_64_intdigest(body))
        os.pwritev(self._file, [head, body], self._end)
        os.fdatasync(self._file)
        self._end += len(head) + len(body)
