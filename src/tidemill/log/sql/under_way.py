"""The appends between `reserve` and the writer pointer: pure books, no I/O.

    reserved, in order    │ 1–3 │ 4–6 │ 7–9 │ 10–12 │
    written, in any order │  ✓  │     │  ✓  │       │    the pointer may move to 3, with 1–3's marks

A takeover removes all rows above the pointer, so that what was written but is not covered must be
written again: with the same numbers, under the newer epoch. The caller holds a lock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidemill.errors import Bug
from tidemill.log.contract import Mark, Reservation


class Numbers(Reservation):
    """What `reserve` gives out: numbers, and the time that goes with them."""

    __slots__ = ("is_shown", "is_written", "marks", "may_count", "time_us")

    def __init__(self, first: int, rows: int, time_us: int) -> None:
        super().__init__(first, rows)
        self.time_us = time_us
        self.marks: Sequence[Mark] = ()
        self.may_count = False  # the pointer may cover it, for all that is known
        self.is_written = False
        self.is_shown = False


class UnderWay:
    """The books of one writer.

    >>> books = UnderWay(pointer=0, time_us=0)
    >>> one, two = books.reserve(3, 10), books.reserve(3, 5)
    >>> books.written(two, ()); books.showable()
    []
    >>> books.written(one, ()); [(numbers.last, numbers.time_us) for numbers in books.showable()]
    [(3, 10), (6, 10)]
    >>> books.shown(books.showable()); books.pointer, books.is_idle
    (6, True)
    """

    def __init__(self, pointer: int, time_us: int) -> None:
        self.pointer = pointer  # the last row that is shown
        self.next_seq = pointer + 1
        self._time_us = time_us  # of the last reservation; times never go back
        self._open: deque[Numbers] = deque()

    @property
    def is_idle(self) -> bool:
        return not self._open

    def reserve(self, rows: int, now_us: int) -> Numbers:
        """The next numbers, with a time that is not before that of earlier ones."""
        self._time_us = max(self._time_us, now_us)
        numbers = Numbers(self.next_seq, rows, self._time_us)
        self.next_seq += rows
        self._open.append(numbers)
        return numbers

    def not_before(self, time_us: int) -> int:
        """Let no later time be before this one; returns the least that still may be given.

        >>> UnderWay(pointer=0, time_us=7).not_before(5)
        7
        """
        self._time_us = max(self._time_us, time_us)
        return self._time_us

    def is_head(self, numbers: Numbers) -> bool:
        """Whether nothing is under way before it, so that it can be written and shown at once."""
        return bool(self._open) and self._open[0] is numbers

    def written(self, numbers: Numbers, marks: Sequence[Mark]) -> None:
        """Note that the rows are in their table."""
        numbers.marks = marks
        numbers.is_written = numbers.may_count = True

    def showable(self) -> list[Numbers]:
        """What the pointer may cover: written, and so is everything before."""
        found = []
        for numbers in self._open:
            if not numbers.is_written:
                break
            found.append(numbers)
        return found

    def shown(self, covered: Sequence[Numbers]) -> None:
        """Note that the pointer covers what `showable` gave."""
        for numbers in covered:
            if self._open.popleft() is not numbers:
                raise Bug(f"rows {numbers.first} to {numbers.last} were shown out of turn")
            numbers.is_shown = True
            self.pointer = numbers.last

    def taken_over(self, pointer: int) -> None:
        """Note where the pointer stands after a takeover, which removed all that is above.

        >>> books = UnderWay(0, 0)
        >>> one, two = books.reserve(3, 10), books.reserve(3, 10)
        >>> books.written(one, ()); books.written(two, ()); books.taken_over(3)
        >>> one.is_shown, two.is_shown, two.is_written, books.pointer
        (True, False, False, 3)
        """
        covered = [numbers for numbers in self._open if numbers.rows and numbers.last <= pointer]
        if covered:
            # What has no rows counts with those that follow it; behind them nobody can tell.
            until = list(self._open).index(covered[-1]) + 1
            self.shown(list(self._open)[:until])
        if pointer != self.pointer:
            raise Bug(f"the pointer stands at {pointer}, where no append of this writer ends")
        for numbers in self._open:
            numbers.is_written = numbers.may_count = False

    def withdraw(self, numbers: Numbers) -> None:
        """Give up numbers, and with them all higher ones: a log has no holes.

        >>> books = UnderWay(0, 0)
        >>> one, two = books.reserve(3, 10), books.reserve(3, 10)
        >>> books.withdraw(one); two.is_withdrawn, books.next_seq
        (True, 1)
        """
        if numbers not in self._open:
            return  # It went with one before it, or is shown.
        while True:
            last = self._open.pop()
            last.is_withdrawn = True
            if last is numbers:
                break
        self.next_seq = numbers.first
