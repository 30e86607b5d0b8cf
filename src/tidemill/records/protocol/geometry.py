"""Which offset lies in which record, and how many records there are.

Offsets are cut into blocks of `slots` each; block b lies in record b mod `records`, whole: a record
holds entries of one block at a time. A ring of 6 entries, 2 to a record, of which up to 6 may be
overwritten at once, has 7 records:

    offsets   0 1 | 2 3 | 4 5 | 6 7 | 8 9 | 10 11 | 12 13 | 14 15 …
    record     0     1     2     3     4      5       6       0

Invariant: the blocks of everything that can be read and of everything that one operation writes lie
in different records. A write that is never committed thus touches nothing that a reader can see,
also when it was to overwrite the oldest entries.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.errors import InvalidInput
from tidemill.limits import RING_CAPACITY_MAX, RING_OVERWRITES_MAX, RING_SLOTS_PER_RECORD_MAX
from tidemill.records.protocol.block import BLOCK_BYTES, SLOT_BYTES
from tidemill.shown import shown


@dataclass(frozen=True, slots=True)
class Geometry:
    """The measures of a ring, fixed when it is made.

    >>> shape = Geometry.plan(capacity=6, slots=2, record_bytes_max=1_000_000)
    >>> shape.records, shape.blocks(12, 15), shape.index_of(14)
    (7, range(6, 8), 0)
    """

    capacity: int
    slots: int  # to a record
    record_bytes_max: int

    @classmethod
    def plan(cls, capacity: int, slots: int, record_bytes_max: int) -> Geometry:
        """The measures of a new ring; `InvalidInput` says what is wrong with those given."""
        check_measures(capacity, slots)
        made = cls(capacity, min(slots, capacity), record_bytes_max)
        if made.entry_bytes_max < 1:
            raise InvalidInput(
                f"slots_per_record={slots} leaves no room for an entry: a record takes "
                f"{record_bytes_max} bytes there"
            )
        return made

    @property
    def overwrites_max(self) -> int:
        """How many entries one operation may write over others."""
        return min(self.capacity, max(self.slots, RING_OVERWRITES_MAX))

    @property
    def records(self) -> int:
        """Buffer records: enough for a full ring, what is written over it, and uneven ends."""
        return (self.capacity + self.overwrites_max + self.slots - 2) // self.slots + 1

    @property
    def entry_bytes_max(self) -> int:
        """The largest entry of which a whole record still fits, so that none is refused later."""
        return (self.record_bytes_max - BLOCK_BYTES) // self.slots - SLOT_BYTES

    def index_of(self, block: int) -> int:
        """Which record a block lies in."""
        return block % self.records

    def blocks(self, first: int, end: int) -> range:
        """The blocks of the offsets from `first` up to, but without, `end`."""
        return range(first // self.slots, (end - 1) // self.slots + 1) if end > first else range(0)


def check_measures(capacity: object, slots: object) -> None:
    """Raise `InvalidInput` if these are the measures of no ring; None: whatever it has."""
    if capacity is not None:
        _check_whole(capacity, 1, RING_CAPACITY_MAX, "capacity")
    if slots is not None:
        _check_whole(slots, 1, RING_SLOTS_PER_RECORD_MAX, "slots_per_record")


def _check_whole(value: object, least: int, most: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(
            f"{what} must be a whole number from {least} to {most}, not {shown(value)}"
        )
