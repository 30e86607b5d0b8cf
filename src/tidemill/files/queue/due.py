"""When to look again for an item whose key is the time that it is due at, in nanoseconds. Pure."""

from __future__ import annotations

_LOOK_S_MIN = 0.001  # between two looks at a clock that is waited for
_LOOK_S_MAX = 1.0  # ... since it may be set, and goes on while the machine sleeps


def look_in_s(due_ns: int, now_ns: int) -> float:
    """How long until it is worth another look whether an item is due.

    >>> look_in_s(5_500_000_000, 5_000_000_000), look_in_s(5, 4), look_in_s(2**62, 0)
    (0.5, 0.001, 1.0)
    """
    # A clock of another kind is asked again after a while, not again and again.
    return min(max((due_ns - now_ns) / 1e9, _LOOK_S_MIN), _LOOK_S_MAX)
