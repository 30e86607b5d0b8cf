"""Objects and a log that fail or crash at a call that is told in advance, before or after it took
effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa

from tidemill.errors import Unavailable
from tidemill.log.archive.objects import ObjectStore, Stored
from tidemill.log.memory import MemoryLog, Shelf

When = Literal["before", "after"]


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Fault:
    """What goes wrong, once: at call number `at`, counted from 0 on."""

    at: int
    when: When
    kind: type[BaseException] = Crash
    calls: list[str] = field(default_factory=list)
    is_over: bool = False

    def step(self, call: str, when: When) -> None:
        if when == "before":
            self.calls.append(call)
        if not self.is_over and self.when == when and len(self.calls) - 1 == self.at:
            self.is_over = True
            raise self.kind(f"{when} {call}")


class FaultyObjects(ObjectStore):
    """Real objects, with a fault in front of them."""

    def __init__(self, objects: ObjectStore, fault: Fault) -> None:
        self._objects = objects
        self._fault = fault
        self.place, self.url = objects.place, objects.url

    def get(self, name: str) -> Stored:
        self._fault.step(f"get {name}", "before")
        found = self._objects.get(name)
        self._fault.step(f"get {name}", "after")
        return found

    def get_range(self, name: str, start: int, end: int) -> pa.Buffer:
        return self._objects.get_range(name, start, end)

    def put_new(self, name: str, data: pa.Buffer) -> str:
        self._fault.step(f"put {name}", "before")
        tag = self._objects.put_new(name, data)
        self._fault.step(f"put {name}", "after")
        return tag

    def replace(self, name: str, data: pa.Buffer, tag: str) -> str:
        self._fault.step(f"replace {name}", "before")
        tag = self._objects.replace(name, data, tag)
        self._fault.step(f"replace {name}", "after")
        return tag

    def names(self, folder: str, *, after: str = "") -> Iterator[str]:
        self._fault.step(f"list {folder}", "before")
        yield from self._objects.names(folder, after=after)

    def delete(self, names: Sequence[str]) -> None:
        self._fault.step(f"delete {len(names)}", "before")
        self._objects.delete(names)
        self._fault.step(f"delete {len(names)}", "after")


class FaultyLog(MemoryLog):
    """A log in memory, with the same fault in front of what an archiver changes in it."""

    def __init__(self, shelf: Shelf, fault: Fault) -> None:
        super().__init__(shelf)
        self._fault = fault

    def release(self, before: int) -> None:
        self._fault.step(f"release {before}", "before")
        super().release(before)
        self._fault.step(f"release {before}", "after")

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        self._fault.step(f"note {name}", "before")
        done = super().set_note(name, value, expected=expected)
        self._fault.step(f"note {name}", "after")
        return done


class Away(Unavailable):
    """The store answers 500, or not at all."""
