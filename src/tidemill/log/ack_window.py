"""Which rows of a consumer are done: a pointer, and what was acked out of turn. Pure.

    pointer ─┐
    1 2 3 4 5│6 7 8 9 …          acked out of turn: 7–9, 14
    ✓ ✓ ✓ ✓ ✓    ✓ ✓ ✓    the pointer moves to 9 as soon as 6 is acked

What is behind the pointer is kept as runs of numbers, so that memory grows with the gaps that are
left open, not with the rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

from tidemill.errors import TooLarge
from tidemill.limits import ACK_RUNS_MAX


class AckWindow:
    """The acks of one consumer.

    >>> window = AckWindow(pointer=0)
    >>> window.ack(2, 3), window.pointer
    (False, 0)
    >>> window.ack(1, 1), window.pointer
    (True, 3)
    """

    __slots__ = ("_firsts", "_lasts", "pointer")

    def __init__(self, pointer: int) -> None:
        self.pointer = pointer  # everything up to here is acked
        # Runs acked behind the pointer, in order; Invariant: no two of them touch each other.
        self._firsts = array("q")
        self._lasts = array("q")

    @property
    def runs(self) -> list[tuple[int, int]]:
        """What is acked behind the pointer: (first, last) of each run."""
        return list(zip(self._firsts, self._lasts, strict=True))

    def ack(self, first: int, last: int) -> bool:
        """Note that the rows `first` to `last` are done; True if the pointer moved.

        What was acked before changes nothing.

        >>> window = AckWindow(pointer=10)
        >>> window.ack(8, 12), window.ack(8, 12), window.pointer, window.ack(14, 14), window.runs
        (True, False, 12, False, [(14, 14)])
        """
        firsts, lasts = self._firsts, self._lasts
        if last < first or last <= self.pointer:
            return False
        if first <= self.pointer + 1:
            # All runs that begin at or before the row behind it are swallowed.
            swallowed = bisect_right(firsts, last + 1)
            self.pointer = max(last, lasts[swallowed - 1]) if swallowed else last
            del firsts[:swallowed], lasts[:swallowed]
            return True
        low = bisect_left(lasts, first - 1)  # the first run that it overlaps or touches
        high = bisect_right(firsts, last + 1)  # behind the last such run
        if low == high and len(firsts) == ACK_RUNS_MAX:
            raise TooLarge(
                f"row {first} cannot be acked: {ACK_RUNS_MAX} gaps are open already, the first "
                f"behind row {self.pointer}; ack the rows in the gaps"
            )
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
        begins, ends = array("q", [first]), array("q", [last])
        # Nothing is called between the two, so that no interrupt can come there.
        firsts[low:high] = begins
        lasts[low:high] = ends
        return False
