"""A process that uses a ring, tells in a file what it does, and stops or kills itself meanwhile.

    python -m tests.records.ring_client URL NAME SEED CALLS FILE FAULTS

FAULTS is JSON: [[step, number, when, signal], …]. Right before or after the step of this kind with
this number, the process sends itself the signal: SIGSTOP, until somebody wakes it, or SIGKILL. The
steps are calls to the store:

    look      the ring's own record is read        grant     the lock is written into it
    read      entries are read                     commit    the new state is written into it
    buffer    entries are written
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import tidemill as tm
from tidemill.records.opening import open_records
from tidemill.records.protocol.creation import metadata_name
from tidemill.records.protocol.metadata import decode_metadata
from tidemill.records.store import Record, RecordStore, Write

T = TypeVar("T")

LOCK_MS = 100
CAPACITY = 12


class FaultyStore:
    """A store whose user stops or dies right before or after a call."""

    def __init__(
        self, store: RecordStore, name: str, faults: Sequence[tuple[str, int, str, str]]
    ) -> None:
        self._store = store
        self._metadata = metadata_name(name)
        self._faults = {(step, number, when): sent for step, number, when, sent in faults}
        self._counts: Counter[str] = Counter()
        self.place = store.place
        self.record_bytes_max = store.record_bytes_max

    def _call(self, step: str, do: Callable[[], T]) -> T:
        number = self._counts[step]
        self._counts[step] += 1
        self._strike(step, number, "before")
        done = do()
        self._strike(step, number, "after")
        return done

    def _strike(self, step: str, number: int, when: str) -> None:
        sent = self._faults.pop((step, number, when), None)
        if sent is not None:
            os.kill(os.getpid(), signal.Signals[sent])

    def _writing(self, name: str, data: bytes) -> str:
        if name != self._metadata:
            return "buffer"
        return "commit" if decode_metadata(data).grant is None else "grant"

    def get(self, name: str) -> Record | None:
        step = "look" if name == self._metadata else "read"
        return self._call(step, lambda: self._store.get(name))

    def create(self, name: str, data: bytes) -> int | None:
        return self._call(self._writing(name, data), lambda: self._store.create(name, data))

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        step = self._writing(name, data)
        return self._call(step, lambda: self._store.replace(name, data, generation))

    def delete(self, name: str, generation: int) -> bool:
        return self._store.delete(name, generation)

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        return self._call("read", lambda: self._store.get_many(names))

    def write_many(self, writes: Sequence[Write]) -> list[int | None]:
        return self._call("buffer", lambda: self._store.write_many(writes))

    def problems(self) -> tuple[str, ...]:
        return self._store.problems()

    def close(self) -> None:
        self._store.close()


def main() -> None:
    url, name, seed, calls, path, faults = sys.argv[1:]
    store, _ = open_records(url)
    ring = tm.Ring.on(
        FaultyStore(store, name, json.loads(faults)), name, lock_ms=LOCK_MS, lock_wait_s=20.0
    )
    chance = random.Random(seed)
    told = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(**said: Any) -> None:
        os.write(told, json.dumps(said).encode() + b"\n")

    for number in range(int(calls)):
        id = f"{seed}-{number}"
        count = chance.randint(1, 3)
        puts_in = chance.random() < 0.55
        values = [f"{id}-{index}" for index in range(count)] if puts_in else []
        tell(id=id, values=values, count=count, began=time.monotonic_ns())
        result: Any
        try:
            if puts_in:
                result = ring.enqueue_many(values, operation_id=id)
            else:
                result = [list(one) for one in ring.dequeue_many(count, operation_id=id)]
        except tm.QueueFull:
            result = "full"
        except tm.OutcomeUnknown:
            result = "unknown"
        except (tm.Locked, tm.Fenced, tm.Unavailable):
            result = "nothing"
        tell(id=id, ended=time.monotonic_ns(), result=result)
    ring.close()


if __name__ == "__main__":
    main()
