"""A clock that a test moves by hand, and that says when somebody waits."""

from __future__ import annotations

import threading


class FakeClock:
    """Time stands still until `advance`; whoever waits is woken when its time has come."""

    def __init__(self, start_ns: int = 1_000_000_000_000) -> None:
        self._ns = start_ns
        self._monotonic_ns = 0
        self._conditions: list[threading.Condition] = []
        self._lock = threading.Lock()
        self.waits: list[float | None] = []
        self.waiting = threading.Semaphore(0)  # released once for each wait that begins

    def time_ns(self) -> int:
        return self._ns

    def monotonic_s(self) -> float:
        return self._monotonic_ns / 1e9

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        self.waits.append(timeout_s)
        with self._lock:
            self._conditions.append(condition)
        # The condition is held, so that nobody can notify between here and the wait itself.
        self.waiting.release()
        return condition.wait(60)

    def set_on(self, seconds: float) -> None:
        """Set the clock forward; nobody hears of it, and no time goes by."""
        self._ns += int(seconds * 1e9)

    def advance(self, seconds: float) -> None:
        """Move on, and let those that wait look at the clock again."""
        self.set_on(seconds)
        self._monotonic_ns += int(seconds * 1e9)
        with self._lock:
            conditions, self._conditions = self._conditions, []
        for condition in conditions:
            with condition:
                condition.notify_all()
