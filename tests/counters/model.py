"""A replica as dumb as can be: whole states, nothing forgotten, no acknowledgements, no columns.

It has the rule of parts (the greatest generation, then version) and of expiries (the greatest
edition, then replica) and nothing else. The real one must show the same after every step, for all
that it sends less, forgets what is dead, and keeps on disk.
"""

from __future__ import annotations

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


_NO_PART = Part(0, 0, 0)


class Model:
    """Copies share what they hold until one of them changes it: there is one for each message."""

    __slots__ = ("_is_shared", "_totals", "expiries", "parts", "replica", "version")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.version = 0
        self.parts: dict[tuple[str, Replica], Part] = {}
        self.expiries: dict[str, Expiry] = {}
        self._is_shared = False
        self._totals: dict[str, int] | None = {}  # of those that are there; None: to be added up

    def copy(self) -> Model:
        other = Model.__new__(Model)
        other.replica, other.version = self.replica, self.version
        other.parts, other.expiries, other._totals = self.parts, self.expiries, self._totals
        self._is_shared = other._is_shared = True
        return other

    def merge(self, other: Model) -> bool:
        """Take what is newer; whether anything is."""
        mine, dates = self.parts, self.expiries
        newer = {
            key: part
            for key, part in other.parts.items()
            if (old := mine.get(key)) is not part and (old is None or part > old)
        }
        later = {
            name: expiry
            for name, expiry in other.expiries.items()
            if name not in dates or expiry[:2] > dates[name][:2]
        }
        if newer or later:
            self._change()
            self.parts.update(newer)
            self.expiries.update(later)
        return bool(newer or later)

    def is_there(self, name: str) -> bool:
        return name in self.totals()

    def value(self, key: tuple[str, Replica]) -> int | None:
        part = self.parts.get(key, _NO_PART)
        return part.value if part.version else None

    def is_past(self, name: str, now_us: int) -> bool:
        expiry = self.expiries.get(name)
        return expiry is not None and expiry.time_us is not None and expiry.time_us <= now_us

    def upsert(self, name: str, delta: int, now_us: int, edition: int) -> int:
        if self.is_past(name, now_us) or not self.is_there(name):
            self.empty(name, edition)
        self._change()
        self.version += 1
        key = (name, self.replica)
        old = self.parts.get(key, _NO_PART)
        self.parts[key] = Part(old.generation, self.version, old.value + delta)
        return self.totals()[name]

    def empty(self, name: str, edition: int) -> None:
        self._change()
        for key, part in self.parts.items():
            if key[0] == name and part.version:
                self.parts[key] = Part(part.generation + 1, 0, 0)
        expiry = self.expiries.get(name)
        if expiry is not None and expiry.time_us is not None:
            self.expiries[name] = Expiry(edition, self.replica, None)

    def expire(self, name: str, time_us: int | None, edition: int) -> None:
        self._change()
        self.expiries[name] = Expiry(edition, self.replica, time_us)

    def agree_on_expiry(self, name: str, expiry: Expiry) -> None:
        """Take one from a node that decided by itself, not knowing what it had forgotten."""
        if self.expiries.get(name) != expiry:
            self._change()
            self.expiries[name] = expiry

    def agree_on_part(self, key: tuple[str, Replica], value: int | None) -> None:
        """What a stranger brought is there until it meets whoever forgot it, and is dead then."""
        old = self.parts.get(key, _NO_PART)
        self._change()
        if value is None:
            self.parts[key] = Part(old.generation + 1, 0, 0)
        else:
            self.parts[key] = Part(max(0, old.generation - 1), 1, value)

    def forget_expiry(self, name: str) -> None:
        if name in self.expiries:
            self._change()
            del self.expiries[name]

    def delete_expired(self, now_us: int, edition: int) -> None:
        for name in list(self.expiries):
            if self.is_past(name, now_us) and self.is_there(name):
                self.empty(name, edition)

    def totals(self) -> dict[str, int]:
        """The sum of each counter that somebody counted in since it was deleted."""
        if self._totals is None:
            self._totals = {}
            for (name, _), part in self.parts.items():
                if part.version:
                    self._totals[name] = self._totals.get(name, 0) + part.value
        return self._totals

    def all(self, now_us: int) -> tuple[dict[str, int], dict[str, int]]:
        totals = self.totals()
        if not self.expiries:
            return totals, {}
        expired = {name: totals[name] for name in totals if self.is_past(name, now_us)}
        if not expired:
            return totals, expired
        return {name: totals[name] for name in totals if name not in expired}, expired

    def _change(self) -> None:
        if self._is_shared:
            self.parts, self.expiries = dict(self.parts), dict(self.expiries)
            self._is_shared = False
        self._totals = None
