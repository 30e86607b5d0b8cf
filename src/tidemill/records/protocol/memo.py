"""What a handle remembers between operations: the last state it saw, and one block.

Nothing here is trusted. A write names the generation of what is remembered, and fails if the store
has another by now; then all of it is forgotten, and read. It saves the readings in between, which
are half of all calls.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.records.protocol.block import Block
from tidemill.records.protocol.metadata import Metadata


@dataclass(frozen=True, slots=True)
class Seen:
    """The metadata record as it was."""

    metadata: Metadata
    generation: int
    age_us: int | None


@dataclass(frozen=True, slots=True)
class SeenBlock:
    """A buffer record as it was; its entries below `end` are committed, and so can never change."""

    block: Block
    generation: int
    end: int


class Memo:
    """The memory of one handle; the ring that it is about is known by `ring`, its random bytes."""

    __slots__ = ("block", "buffers", "name", "ring", "seen", "watched")

    def __init__(self, name: str, ring: bytes, buffers: str | None = None) -> None:
        self.name = name
        self.buffers = buffers or name  # what its buffer records are called
        self.ring = ring
        self.seen: Seen | None = None
        self.block: SeenBlock | None = None
        # A token of somebody else's, and since when it stands there, on this process's clock. It is
        # kept between operations, so that impatient ones see an expiry as well.
        self.watched: tuple[int, float] | None = None

    def forget(self) -> None:
        """Take nothing for known."""
        self.seen = None
        self.block = None

    def buffer_name(self, index: int) -> str:
        """The name of a buffer record: no other ring has it, not even one made in its place."""
        return f"{self.buffer_prefix}{index}"

    @property
    def buffer_prefix(self) -> str:
        """What the names of all buffer records of the ring begin with."""
        return f"{self.buffers}:{self.ring.hex()}:"
