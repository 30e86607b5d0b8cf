"""Which events came out of a queue, and whether they are what went in."""

from __future__ import annotations

import numpy as np

import tidemill as tm
from tidemill.gateway.demo.telemetry import Numbers, Telemetry


class Inventory:
    """The events that were seen at one end.

    >>> telemetry = Telemetry(10)
    >>> inventory = Inventory(telemetry)
    >>> inventory.has(np.array([3]))
    False
    """

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._is_seen = np.zeros(telemetry.items, np.bool_)

    @property
    def count(self) -> int:
        return int(self._is_seen.sum())

    def add(self, batch: tm.Batch) -> Numbers:
        """Take note of what was popped; raises if it is doubled, invented, changed or unsorted."""
        keys = batch.keys.to_numpy()
        numbers = self._telemetry.numbers(keys)
        if (numbers < 0).any():
            raise tm.Bug("an event came out that no device ever took")
        if (np.diff(numbers) <= 0).any():
            raise tm.Bug("events came out doubled, or not in order")
        if self._is_seen[numbers].any():
            raise tm.Bug("an event came out twice")
        if not self._telemetry.are_right(numbers, batch.to_arrow()):
            raise tm.Bug("an event came out with other contents than it went in with")
        self._is_seen[numbers] = True
        return numbers

    def has(self, numbers: Numbers) -> bool:
        """Whether all of these were seen; raises if only some were: a push is all or nothing."""
        seen = self._is_seen[numbers]
        if seen.any() and not seen.all():
            raise tm.Bug("a push is there in part")
        return bool(seen.all())

    def check_complete(self) -> None:
        """Raise unless every event was seen."""
        if not self._is_seen.all():
            raise tm.Bug(f"{self._telemetry.items - self.count:,} events are lost")
