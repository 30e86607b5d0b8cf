"""The judge of "lost, duplicated, reordered, invented" for a log: by numbers.

Rows are unique (`UniqueValues`), so that a row alone tells which send it is of. What was confirmed
is there under the numbers of its receipt. Each other send is there whole or not at all, and not at
all if it was refused. Nothing is there twice, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.faults.checker import UniqueValues, Violation, some


@dataclass(slots=True)
class _Send:
    rows: list[bytes]
    first: int | None = None  # of its receipt
    is_refused: bool = False


@dataclass(slots=True)
class Sent:
    """What was sent to one log, by whomever, and what came of it. Any thread may record."""

    values: UniqueValues = field(default_factory=UniqueValues)
    _sends: list[_Send] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def attempt(self, count: int) -> tuple[int, list[bytes]]:
        """Rows to be sent, and the number by which to tell what came of it."""
        with self._lock:
            rows = [self.values.value(0) for _ in range(count)]
            self._sends.append(_Send(rows))
            return len(self._sends) - 1, rows

    def attempted(self, rows: Sequence[bytes]) -> int:
        """Note rows that somebody else made."""
        with self._lock:
            self._sends.append(_Send(list(rows)))
            return len(self._sends) - 1

    def confirmed(self, send: int, first: int) -> None:
        self._sends[send].first = first

    def refused(self, send: int) -> None:
        """It failed with an error that promises that nothing of it is there."""
        self._sends[send].is_refused = True

    @property
    def confirmations(self) -> int:
        return sum(send.first is not None for send in self._sends)

    def check(self, rows: Sequence[bytes], *, first: int = 1) -> None:
        """Raise `Violation` unless the log may hold `rows`, with the numbers from `first` on."""
        places: dict[bytes, int] = {}
        problems = []
        for number, row in enumerate(rows, first):
            if row in places:
                problems.append(f"duplicated: {row!r} is row {places[row]} and row {number}")
            places[row] = number
        known = set()
        for send in self._sends:
            known.update(send.rows)
            found = [places.get(row) for row in send.rows]
            if send.first is not None:
                expected = list(range(send.first, send.first + len(send.rows)))
                if any(number is None for number in found):
                    problems.append(f"lost: of rows {some(expected)} are left {some(found)}")
                elif found != expected:
                    problems.append(f"reordered: rows {some(expected)} are at {some(found)}")
            elif any(number is not None for number in found):
                if send.is_refused:
                    problems.append(f"invented: a send that was refused is at {some(found)}")
                start = found[0]
                if start is None or found != list(range(start, start + len(found))):
                    problems.append(f"part of a send: its rows are at {some(found)}")
        if made_up := [row for row in places if row not in known]:
            problems.append(f"invented: {some(made_up)} was never sent")
        if problems:
            raise Violation("\n".join(problems))
