"""Who may have which numbers, while several appends are under way: pure books, no I/O.

    reserved, in order     │  1–3  │ 4–6 │ 7–9 │ 10–12 │
    durable, in any order  │   ✓   │     │  ✓  │       │      the writer pointer may stand at 3

Appends become durable in any order, but count in the order of their numbers: `durable` says which
ones may be shown. If one fails for good, its numbers are given again, and so are all higher ones,
for a log has no holes. The caller holds a lock of its own around each call.
"""

from __future__ import annotations

from collections import deque

from tidemill.errors import Bug
from tidemill.log.contract import Reservation, Withdrawn


class Numbering:
    """The books of one writer.

    >>> numbering = Numbering(1)
    >>> one, two = numbering.reserve(3), numbering.reserve(2)
    >>> numbering.durable(two), [ended.last for ended in numbering.durable(one)]
    ([], [3, 5])
    """

    def __init__(self, next_seq: int) -> None:
        self.next_seq = next_seq  # what the next reservation begins with
        self._open: deque[Reservation] = deque()
        self._durable: set[Reservation] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no reservation is under way."""
        return not self._open

    def reserve(self, rows: int, after: int | None = None) -> Reservation:
        """The next numbers; `Withdrawn` if they do not begin behind `after`."""
        if after is not None and after != self.next_seq - 1:
            raise Withdrawn
        reservation = Reservation(self.next_seq, rows)
        self.next_seq += rows
        self._open.append(reservation)
        return reservation

    def check(self, reservation: Reservation) -> None:
        """Raise `Withdrawn` if the numbers are no longer to be written; each append asks.

        >>> numbering = Numbering(1)
        >>> one, two = numbering.reserve(3), numbering.reserve(2)
        >>> higher = numbering.withdraw(one)
        >>> numbering.check(two)
        Traceback (most recent call last):
        tidemill.log.contract.Withdrawn
        """
        if reservation.is_withdrawn:
            raise Withdrawn

    def durable(self, reservation: Reservation) -> list[Reservation]:
        """Note that an append is durable; returns those that may now be shown, in order.

        >>> numbering = Numbering(1)
        >>> [ended.last for ended in numbering.durable(numbering.reserve(3))]
        [3]
        """
        if reservation.is_withdrawn or reservation not in self._open:
            raise Bug(f"the numbers from {reservation.first} on are not under way")
        self._durable.add(reservation)
        covered = []
        while self._open and self._open[0] in self._durable:
            ended = self._open.popleft()
            self._durable.remove(ended)
            covered.append(ended)
        return covered

    def withdraw(self, reservation: Reservation) -> list[Reservation]:
        """Give up a reservation; returns those with higher numbers, which are withdrawn with it.

        >>> numbering = Numbering(1)
        >>> one, two = numbering.reserve(3), numbering.reserve(2)
        >>> numbering.withdraw(one) == [two], two.is_withdrawn, numbering.next_seq
        (True, True, 1)
        """
        if reservation not in self._open:
            return []  # It was withdrawn with one before it.
        higher = []
        while self._open[-1] is not reservation:
            one = self._open.pop()
            one.is_withdrawn = True
            higher.append(one)
        self._open.pop()
        self._durable.difference_update(higher)
        self._durable.discard(reservation)
        reservation.is_withdrawn = True
        self.next_seq = reservation.first
        return higher[::-1]
