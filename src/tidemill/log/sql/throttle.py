"""So many writes a second in each lane, however many rows each of them holds: pure."""

from __future__ import annotations

from tidemill.clock import Clock
from tidemill.errors import InvalidInput

_INTERVAL_S_MAX = 1e9  # a thread that is to wait much longer raises instead


class Throttle:
    """When each lane may write again. No rate, or 0, means as often as it likes.

    >>> from tidemill.clock import SystemClock
    >>> throttle = Throttle(10, lanes=2, clock=SystemClock())
    >>> throttle.wrote(0)
    >>> 0.09 < throttle.turn_s(0) <= 0.1, throttle.turn_s(1)
    (True, 0.0)
    """

    def __init__(self, writes_per_second_max: float | None, *, lanes: int, clock: Clock) -> None:
        rate = check_rate(writes_per_second_max)
        self._interval_s = min(1 / rate, _INTERVAL_S_MAX) if rate else 0.0
        self._clock = clock
        self._turns_s = [float("-inf")] * lanes

    def turn_s(self, lane: int) -> float:
        """In how many seconds the lane may write again; 0 for at once."""
        if not self._interval_s:
            return 0.0
        return max(0.0, self._turns_s[lane] - self._clock.monotonic_s())

    def wrote(self, lane: int) -> None:
        """Note a write, from which the next one keeps its distance."""
        self._turns_s[lane] = self._clock.monotonic_s() + self._interval_s


def check_rate(writes_per_second_max: object) -> float:
    """The rate that an option means, 0 for none.

    >>> check_rate(None), check_rate(0.5)
    (0.0, 0.5)
    """
    rate = 0.0 if writes_per_second_max is None else writes_per_second_max
    if isinstance(rate, (int, float)) and 0 <= rate < float("inf"):
        return float(rate)
    raise InvalidInput(
        f"writes_per_second_max must be 0 (no limit) or more, not {writes_per_second_max!r}"
    )
