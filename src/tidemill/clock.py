"""Time as a parameter, so that tests decide what time it is."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from tidemill.errors import InvalidInput
from tidemill.numbers import whole_number
from tidemill.shown import shown


class Clock(Protocol):
    """Where a queue gets the time from, and how it waits."""

    def time_ns(self) -> int:
        """Nanoseconds since 1970 UTC; may jump in either direction."""

    def monotonic_s(self) -> float:
        """Seconds that never go backwards, for deadlines."""

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        """Wait on a held condition; False if the time ran out."""


class SystemClock:
    """The machine's clock."""

    def time_ns(self) -> int:
        return time.time_ns()

    def monotonic_s(self) -> float:
        return time.monotonic()

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        return condition.wait(timeout_s)


def wait_seconds(wait_s: object, *, what: str = "wait_s") -> float:
    """A wait as a caller gave it, checked, and no longer than threads can wait."""
    seconds = wait_s if isinstance(wait_s, float) else whole_number(wait_s)
    if seconds is None or not seconds >= 0:
        raise InvalidInput(f"{what} is a number of seconds from 0 on, not {shown(wait_s)}")
    return float(min(seconds, threading.TIMEOUT_MAX))
