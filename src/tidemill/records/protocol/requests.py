"""What a step of the protocol may ask for, and what it is told."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from tidemill.records.store import Write

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GetMetadata:
    """Told: the metadata record, a `Record`, or None."""


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Told: a generation, or None if there is such a record."""

    data: bytes


@dataclass(frozen=True, slots=True)
class ReplaceMetadata:
    """Told: a generation, or None if the record has another than the one that is named."""

    data: bytes
    generation: int


@dataclass(frozen=True, slots=True)
class DeleteMetadata:
    """Told: whether it was deleted."""

    generation: int


@dataclass(frozen=True, slots=True)
class GetBuffers:
    """Told: a list of records or None. The names are whole."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteBuffers:
    """Told: a list of generations, or None where the record has another."""

    writes: tuple[Write, ...]


@dataclass(frozen=True, slots=True)
class DeleteBuffer:
    """Told: whether it was deleted."""

    name: str
    generation: int


@dataclass(frozen=True, slots=True)
class Now:
    """Told: seconds on a clock of this process that never goes back."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Told: nothing, after about this time; others may use the same memory meanwhile."""

    seconds: float


Request: TypeAlias = (
    GetMetadata
    | CreateMetadata
    | ReplaceMetadata
    | DeleteMetadata
    | GetBuffers
    | WriteBuffers
    | DeleteBuffer
    | Now
    | Wait
)

# What a step is told depends on what it asked for, which types cannot say of a generator.
Steps: TypeAlias = Generator[Request, Any, T]
