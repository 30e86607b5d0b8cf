"""How far the next micro-batch goes. Pure.

  start                      start + most        next
────┼──────────────────────────────┼───────────────┼──▶     all that is there, or `most` rows of
    │◀────── taken now ───────────▶│                        it; fewer than `least` wait, until
                                                            they have waited for long enough
"""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows


class Admission(NamedTuple):
    """What bounds a micro-batch."""

    most: int | None
    least: int | None
    delay_s_max: float

    def default_limit(self) -> ReadLimit:
        """What Spark is to ask for. It knows one kind of bound at a time; the other is ours."""
        if self.most is not None:
            return ReadMaxRows(self.most)
        return ReadAllAvailable() if self.least is None else ReadMinRows(self.least)

    def end(self, start: int, available: int, limit: ReadLimit, waited_s: float) -> int:
        """The end of the next micro-batch; `start` if it has to wait.

        >>> bounds = Admission(most=10, least=5, delay_s_max=60)
        >>> bounds.end(1, 4, ReadMaxRows(10), waited_s=0), bounds.end(1, 4, ReadMaxRows(10), 61)
        (1, 4)
        >>> bounds.end(1, 100, ReadMaxRows(10), waited_s=0)
        11
        >>> bounds.end(1, 100, ReadAllAvailable(), waited_s=0)
        100
        """
        if isinstance(limit, ReadAllAvailable):
            return max(start, available)
        least = limit.min_rows if isinstance(limit, ReadMinRows) else self.least
        if least is not None and available - start < least and waited_s < self.delay_s_max:
            return start
        if isinstance(limit, ReadMaxRows):
            available = min(available, start + limit.max_rows)
        return max(start, available)
