"""Records in the memory of this process: the reference for all other stores."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tidemill.limits import MIB
from tidemill.records.bounds import check_record_name, check_record_size
from tidemill.records.store import OneByOne, Record


@dataclass(slots=True)
class _Kept:
    data: bytes
    generation: int
    written_us: int


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000


class MemoryStore(OneByOne):
    """A dict with generations and a clock.

    >>> store = MemoryStore()
    >>> first = store.create("a", b"one")
    >>> store.create("a", b"again") is None
    True
    >>> second = store.replace("a", b"two", first)
    >>> store.replace("a", b"late", first) is None, store.get("a").data
    (True, b'two')
    """

    def __init__(
        self,
        place: str = "memory",
        *,
        record_bytes_max: int = 64 * MIB,
        clock_us: Callable[[], int] | None = _monotonic_us,  # None: a store without a clock
    ) -> None:
        self.place = place
        self.record_bytes_max = record_bytes_max
        self._clock_us = clock_us
        self._records: dict[str, _Kept] = {}
        self._generation = 0  # the last that was used, for any record
        self._mutex = threading.Lock()

    def get(self, name: str) -> Record | None:
        """The record as it is now; None if there is none."""
        check_record_name(name)
        with self._mutex:
            kept = self._records.get(name)
            if kept is None:
                return None
            age_us = None if self._clock_us is None else self._clock_us() - kept.written_us
            return Record(kept.data, kept.generation, age_us)

    def create(self, name: str, data: bytes) -> int | None:
        """Write a record that is not there; None if it is."""
        self._check(name, data)
        with self._mutex:
            if name in self._records:
                return None
            return self._put(name, data)

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        """Write a record if it has this generation; None if it has another, or is gone."""
        self._check(name, data)
        with self._mutex:
            kept = self._records.get(name)
            if kept is None or kept.generation != generation:
                return None
            return self._put(name, data)

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""
        with self._mutex:
            kept = self._records.get(name)
            if kept is None or kept.generation != generation:
                return False
            del self._records[name]
            return True

    def problems(self) -> tuple[str, ...]:
        """None that anybody would not know of: the records go with the process."""
        return ()

    def close(self) -> None:
        """The records stay, for whoever else has the store."""

    def _put(self, name: str, data: bytes) -> int:
        self._generation += 1
        written_us = 0 if self._clock_us is None else self._clock_us()
        self._records[name] = _Kept(bytes(data), self._generation, written_us)
        return self._generation

    def _check(self, name: str, data: bytes) -> None:
        check_record_name(name)
        check_record_size(name, len(data), self.place, self.record_bytes_max)
