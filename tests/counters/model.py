"""A replica as dumb as can be: whole states, nothing forgotten, no acknowledgements, no columns.

It has the rule of parts (the greatest generation, then version) and of expiries (the greatest
edition, then replica) and nothing else. The real one must show the same after every step, for all
that it sends less, forgets what is dead, and keeps on disk.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidemill.counters import Replica


class Part(NamedTuple):
    generation: int
    version: int
    value: int


class Expiry(NamedTuple):
    edition: int
    by: Replica
    time_us: int | None


@dataclass
class Model:
    replica: Replica
    version: int = 0
    parts: dict[tuple[str, Replica], Part] = field(default_factory=dict)
    expiries: dict[str, Expiry] = field(default_factory=dict)

    def copy(self) -> Model:
        return Model(self.replica, self.version, dict(self.parts), dict(self.expiries))

    def merge(self, other: Model) -> None:
        mine = self.parts
        for key, part in other.parts.items():
            if key not in mine or part > mine[key]:
                mine[key] = part
        for name, expiry in other.expiries.items():
            if name not in self.expiries or expiry[:2] > self.expiries[name][:2]:
                self.expiries[name] = expiry

    def is_there(self, name: str) -> bool:
        return any(part.version for key, part in self.parts.items() if key[0] == name)

    def value(self, name: str) -> int:
        return sum(part.value for key, part in self.parts.items() if key[0] == name)

    def is_past(self, name: str, now_us: int) -> bool:
        expiry = self.expiries.get(name)
        return expiry is not None and expiry.time_us is not None and expiry.time_us <= now_us

    def upsert(self, name: str, delta: int, now_us: int, edition: int) -> int:
        if self.is_past(name, now_us) or not self.is_there(name):
            self.empty(name, edition)
        self.version += 1
        key = (name, self.replica)
        old = self.parts.get(key, Part(0, 0, 0))
        self.parts[key] = Part(old.generation, self.version, old.value + delta)
        return self.value(name)

    def empty(self, name: str, edition: int) -> None:
        for key, part in self.parts.items():
            if key[0] == name and part.version:
                self.parts[key] = Part(part.generation + 1, 0, 0)
        expiry = self.expiries.get(name)
        if expiry is not None and expiry.time_us is not None:
            self.expiries[name] = Expiry(edition, self.replica, None)

    def expire(self, name: str, time_us: int | None, edition: int) -> None:
        self.expiries[name] = Expiry(edition, self.replica, time_us)

    def delete_expired(self, now_us: int, edition: int) -> None:
        for name in {key[0] for key in self.parts}:
            if self.is_past(name, now_us) and self.is_there(name):
                self.empty(name, edition)

    def all(self, now_us: int) -> tuple[dict[str, int], dict[str, int]]:
        live: dict[str, int] = {}
        expired: dict[str, int] = {}
        sums: dict[str, int] = {}
        there: set[str] = set()
        for (name, _), part in self.parts.items():
            sums[name] = sums.get(name, 0) + part.value
            if part.version:
                there.add(name)
        for name in there:
            (expired if self.is_past(name, now_us) else live)[name] = sums[name]
        return live, expired
