"""One conditional write for each call: the least that a queue on etcd could cost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from tidemill.records.opening import open_records

_names = itertools.count(1)


class BareRecords:
    """A record that is written over; what it held counts as taken."""

    name = "a conditional write of etcd"

    def __init__(self, url: str) -> None:
        self._store, _ = open_records(url.format("bare"))
        self._name = f"bare:{next(_names)}"
        generation = self._store.create(self._name, b"")
        if generation is None:
            raise RuntimeError("the record was there already")
        self._generation = generation

    def put(self, values: Sequence[bytes]) -> None:
        self._write(b"".join(values))

    def take(self, count: int) -> int:
        self._write(b"")
        return count

    def _write(self, data: bytes) -> None:
        generation = self._store.replace(self._name, data, self._generation)
        if generation is None:
            raise RuntimeError("somebody else wrote the record")
        self._generation = generation

    def close(self) -> None:
        self._store.close()
