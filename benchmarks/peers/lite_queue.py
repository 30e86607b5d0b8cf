"""litequeue: messages in SQLite with WAL.

Puts of a batch share a transaction; each pop makes its own, and the messages are then marked as
done together. They stay in the table; pruning it is left out, in its favour.
"""

from __future__ import annotations

import struct
import threading
from pathlib import Path
from typing import Any

from benchmarks.data import Pairs

_KEY = struct.Struct("<q")


class LiteQueue:
    """Threads share a connection, and need a lock for it: its transactions are explicit."""

    name = "litequeue"

    def __init__(self, folder: Path, sync: bool) -> None:
        import litequeue

        self._lock = threading.Lock()
        self._queue: Any = litequeue.LiteQueue(str(folder / "queue.db"))
        self._queue.conn.execute(f"PRAGMA synchronous = {'FULL' if sync else 'OFF'}")

    def push(self, rows: Pairs) -> None:
        put = self._queue.put
        with self._lock, self._queue.transaction():
            for key, value in rows:
                put(_KEY.pack(key) + value)

    def pop(self, count: int) -> Pairs:
        with self._lock:
            messages = [self._queue.pop() for _ in range(count)]
            with self._queue.transaction():
                for message in messages:
                    self._queue.done(message.message_id)
        return [_row(message.data) for message in messages]

    def push_one(self, row: tuple[int, bytes]) -> None:
        with self._lock:
            self._queue.put(_KEY.pack(row[0]) + row[1])

    def pop_one(self) -> tuple[int, bytes]:
        with self._lock:
            message = self._queue.pop()
            self._queue.done(message.message_id)
        return _row(message.data)

    def close(self) -> None:
        self._queue.close()


def _row(data: bytes) -> tuple[int, bytes]:
    return _KEY.unpack_from(data)[0], data[_KEY.size :]
