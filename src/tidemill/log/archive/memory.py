"""The reference: objects in this process, which do what the port says and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pyarrow as pa

from tidemill.log.archive.objects import Absent, Changed, ObjectStore, Present, Stored
from tidemill.names import check_name

_shelves: dict[str, MemoryObjects] = {}
_shelves_mutex = threading.Lock()


class MemoryObjects(ObjectStore):
    """Objects under a name, for as long as the process lasts.

    >>> objects = MemoryObjects("doc-objects")
    >>> tag = objects.put_new("manifest.json", pa.py_buffer(b"1"))
    >>> objects.replace("manifest.json", pa.py_buffer(b"2"), tag)
    '2'
    """

    def __init__(self, name: str) -> None:
        self.place = self.url = f"memory:{check_name(name, what='archive')}"
        self._mutex = threading.Lock()
        self._objects: dict[str, Stored] = {}
        self._puts = 0

    @staticmethod
    def of(name: str) -> MemoryObjects:
        """The objects that all of this process know by a name."""
        with _shelves_mutex:
            found = _shelves.get(name)
            if found is None:
                found = _shelves[name] = MemoryObjects(name)
            return found

    def get(self, name: str) -> Stored:
        with self._mutex:
            if name not in self._objects:
                raise Absent(name)
            return self._objects[name]

    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        return self.get(name).data[start:end]

    def put_new(self, name: str, data: pa.Buffer) -> str:
        with self._mutex:
            if name in self._objects:
                raise Present(name)
            return self._put(name, data)

    def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
        with self._mutex:
            if name not in self._objects or self._objects[name].tag != tag:
                raise Changed(name)
            return self._put(name, data)

    def names(self, folder: str, *, after: str = "") -> Iterator[str]:
        with self._mutex:
            found = sorted(self._objects)
        yield from (name for name in found if name.startswith(f"{folder}/") and name > after)

    def delete(self, names: Sequence[str]) -> None:
        with self._mutex:
            for name in names:
                self._objects.pop(name, None)

    def _put(self, name: str, data: pa.Buffer) -> str:
        self._puts += 1
        tag = str(self._puts)
        self._objects[name] = Stored(data, tag)
        return tag
