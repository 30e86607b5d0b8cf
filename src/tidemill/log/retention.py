"""Which rows at the front of a log are to go: by number, time, age, size, or as all have read them.

    first     before │ older than │ all but the newest bytes │ acked by every consumer        next
      ├──────────────────────────────┤ the greatest of those that are given ├──────────────────┤
                    go                                                               stay

The same limits say which rows go to the archive and which go for ever. A row goes if any of them
says so; so whoever bounds the age and the size has both bounds kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np

from tidemill.errors import InvalidInput
from tidemill.limits import AGE_S_MAX
from tidemill.log.contract import LogStore
from tidemill.log.start import row_at
from tidemill.log.tiered import TieredLog
from tidemill.shown import shown

_ROWS_PER_LOOK = 1_000_000  # whose frames are looked at together


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Limits, any of which may be left out.

    >>> Retention(bytes_max=-1)
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: bytes_max is a whole number from 0 on, not -1
    """

    before: int | datetime | None = None  # rows below this number, or written before this time
    older_than: timedelta | None = None  # rows written longer ago than this
    bytes_max: int | None = None  # all rows but the newest that take so much together
    consumed: bool = False  # rows that every consumer has acked; none if there is no consumer

    def __post_init__(self) -> None:
        if self.older_than is not None and (
            not isinstance(self.older_than, timedelta)
            or not timedelta() <= self.older_than <= timedelta(seconds=AGE_S_MAX)
        ):
            raise InvalidInput(
                f"older_than is a timedelta from 0 to 1,000 years, not {shown(self.older_than)}"
            )
        size = self.bytes_max
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise InvalidInput(f"bytes_max is a whole number from 0 on, not {shown(size)}")
        if not isinstance(self.consumed, bool):
            raise InvalidInput(f"consumed is True or False, not {shown(self.consumed)}")

    @property
    def is_empty(self) -> bool:
        """Whether it says nothing."""
        return self == Retention()

    def end(self, log: TieredLog, *, hot: bool = False, now: datetime | None = None) -> int:
        """The first row that stays. With `hot`, sizes are those of rows that are not archived."""
        found = [log.ends().first]
        if self.before is not None:
            place = row_at(log, self.before, "before")
            if place is None:
                raise InvalidInput(
                    f"before is the number of a row, or a datetime; not {shown(self.before)}"
                )
            found.append(place)
        if self.older_than is not None:
            young = (datetime.now(UTC) if now is None else now) - self.older_than
            seq = row_at(log, young, "older_than")
            assert seq is not None  # A datetime has a row, or the end.
            found.append(seq)
        if self.bytes_max is not None:
            found.append(_first_within(log, self.bytes_max, hot=hot))
        if self.consumed and (consumers := log.consumers()):
            found.append(min(state.pointer for state in consumers.values()) + 1)
        return max(found)

    def end_of_hot(self, log: TieredLog) -> int:
        """The first row that is not to be archived; the end of the log if nothing is said."""
        end = log.ends().next
        return end if self.is_empty else min(end, self.end(log, hot=True))


def _first_within(log: TieredLog, bytes_max: int, *, hot: bool) -> int:
    """The first of the newest rows that take at most so much, where they are stored together."""
    first, next_seq = log.ends()
    archive = log.archive()
    # What lies in both places for a while counts as archived.
    low = first if archive is None else max(first, archive.look().next)
    seq, room = _newest_hot(log.hot, low, next_seq, bytes_max)
    if hot or archive is None or seq > low:
        return seq
    return max(first, archive.newest_within(room, seq))


def _newest_hot(log: LogStore, low: int, end: int, room: int) -> tuple[int, int]:
    """The first of the newest rows from `low` on that fit, and what room is left then."""
    while end > low:
        start = max(low, end - _ROWS_PER_LOOK)
        layout = log.layout(start, end)
        sizes = np.cumsum(layout.sizes[::-1])
        count = int(np.searchsorted(sizes, room, side="right"))
        if count < len(sizes):
            return (int(layout.firsts[-count]) if count else end), 0
        if count:
            room -= int(sizes[-1])
            start = min(start, int(layout.firsts[0]))
        end = start
    return low, room
