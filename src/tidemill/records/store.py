"""The contract of a record store: what a ring asks of the place where it is kept.

A record is a name and some bytes. One record is read and written in one atomic step; several are
not. Each write gives the record another generation, and a write that names a generation happens
only if the record still has it. That is all a ring needs, and every store has it in some form.

    create(name, data)               ──▶ generation, or None: there is such a record already
    get(name)                        ──▶ data, generation, age; or None: there is none
    replace(name, data, generation)  ──▶ the new one, or None: the record has another by now
    delete(name, generation)         ──▶ True, or False: the record has another, or is gone

Invariant: a generation is never used twice for one name, not even after the record was deleted and
made again; a number that wraps around, or that starts again at 1, will not do. Generations are
compared for equality alone.

Errors tell what is known. `Unavailable`: nothing was done. `OutcomeUnknown`: a write may have been
done, or may still be; the caller has to look. `TooLarge`: more than `record_bytes_max`; nothing was
done. A name has letters, digits, "-", "_", "." and ":", at most `RECORD_NAME_LENGTH_MAX` of them,
and names that differ by case are two. Every call ends within a time that the store knows,
and may come from any thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Record:
    """What a record was in the moment when it was read."""

    data: bytes
    generation: int
    # µs since it was last written, by the store's own clock, read in the same step; None: no clock.
    # It may be wrong or negative after the store moved to another machine: nothing but patience
    # depends on it.
    age_us: int | None


@dataclass(frozen=True, slots=True)
class Write:
    """One of several writes: a replacement, or the creation of a record if `generation` is None."""

    name: str
    data: bytes
    generation: int | None


class RecordStore(Protocol):
    """A place for records."""

    place: str  # where it is, for messages: no passwords
    record_bytes_max: int  # of the data of one record

    def get(self, name: str) -> Record | None:
        """The record as it is now; None if there is none."""

    def create(self, name: str, data: bytes) -> int | None:
        """Write a record that is not there; None if it is."""

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        """Write a record if it has this generation; None if it has another, or is gone."""

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        """Each of these records: each is atomic, all together are not."""

    def write_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Each of these writes, to records of different names and independent of the others: in any
        order, and some may fail. An error says of no write that it was not done.
        """

    def problems(self) -> tuple[str, ...]:
        """Which settings of the server void what it confirms; each says what to do."""

    def close(self) -> None:
        """Let go of connections; closing again does nothing."""


class OneByOne:
    """For stores that have no quicker way to do several things than one after the other."""

    def get_many(self: RecordStore, names: Sequence[str]) -> list[Record | None]:
        """Each of these records, one after the other."""
        return [self.get(name) for name in names]

    def write_many(self: RecordStore, writes: Sequence[Write]) -> list[int | None]:
        """Each of these writes, one after the other."""
        return [
            self.create(write.name, write.data)
            if write.generation is None
            else self.replace(write.name, write.data, write.generation)
            for write in writes
        ]


class ManyAtOnce:
    """For stores to which one thing is a batch of one."""

    def get(self: RecordStore, name: str) -> Record | None:
        """The record as it is now; None if there is none."""
        return self.get_many([name])[0]

    def create(self: RecordStore, name: str, data: bytes) -> int | None:
        """Write a record that is not there; None if it is."""
        return self.write_many([Write(name, data, None)])[0]

    def replace(self: RecordStore, name: str, data: bytes, generation: int) -> int | None:
        """Write a record if it has this generation; None if it has another, or is gone."""
        return self.write_many([Write(name, data, generation)])[0]
