"""Which segments hold frames of which bucket. Pure.

    few    a dictionary of what was noted lately: in most queues all there is
    many   two columns, a row for each bucket and segment, by bucket

A dictionary takes hundreds of bytes for each bucket, the columns sixteen. Keys that are times in
nanoseconds, spread over years, fall into millions of buckets: once the few are many, they move.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from tidemill.limits import INT64_MAX

_FEW_MAX = 4096
_SHARE = 32  # of the many, that the few may be: moving them costs a pass over all

Numbers = NDArray[np.int64]


class Holders:
    """Pairs of a bucket and a segment, each once.

    >>> holders = Holders([(1, [5, 7]), (2, [7])])
    >>> holders.of(7), holders.next_bucket(6), holders.segments()
    ([1, 2], 7, [1, 2])
    """

    def __init__(self, given: Iterable[tuple[int, list[int]]] = ()) -> None:
        """`given` are segments, each with its buckets, ascending."""
        self._few: dict[int, set[int]] = {}
        self._order: list[int] = []  # the buckets of the few, ascending
        self._buckets: Numbers = np.empty(0, np.int64)  # of the many, ascending
        self._segments: Numbers = np.empty(0, np.int64)
        self._counts: dict[int, int] = {}  # segment → its buckets
        for segment, buckets in given:
            for bucket in buckets:
                self._few.setdefault(bucket, set()).add(segment)
            if buckets:
                self._counts[segment] = len(buckets)
            if len(self._few) > self._few_max:
                self._move()
        self._order = sorted(self._few)

    def __len__(self) -> int:
        """How many buckets there are."""
        many = self._buckets
        firsts = np.count_nonzero(many[1:] != many[:-1]) + bool(len(many))
        return int(firsts) + sum([not self._is_among_many(bucket) for bucket in self._order])

    def hold(self, bucket: int, segment: int) -> None:
        """Note that a segment has frames of a bucket."""
        found = self._few.get(bucket)
        if found is not None and segment in found:
            return
        if self._is_among_many(bucket) and segment in self._segments[self._rows_of(bucket)]:
            return
        if found is not None:
            found.add(segment)
        else:
            insort(self._order, bucket)
            self._few[bucket] = {segment}
        self._counts[segment] = self._counts.get(segment, 0) + 1
        if len(self._order) > self._few_max:
            self._move()

    def drop(self, segment: int) -> None:
        """Forget a segment."""
        if self._counts.pop(segment, None) is None:
            return
        kept = self._segments != segment
        if not kept.all():
            self._buckets, self._segments = self._buckets[kept], self._segments[kept]
        for bucket in [bucket for bucket, found in self._few.items() if segment in found]:
            self._few[bucket].remove(segment)
            if not self._few[bucket]:
                del self._few[bucket]
        if len(self._few) < len(self._order):
            self._order = sorted(self._few)

    def of(self, bucket: int) -> list[int]:
        """The segments that hold frames of a bucket, ascending."""
        found = self._few.get(bucket, set())
        if len(self._buckets):
            found = found.union(self._segments[self._rows_of(bucket)].tolist())
        return sorted(found)

    def segments(self) -> list[int]:
        """All segments that hold frames, ascending."""
        return sorted(self._counts)

    def next_bucket(self, at_least: int) -> int | None:
        """The lowest bucket that is not below `at_least`."""
        at = bisect_left(self._order, at_least)
        found = self._order[at] if at < len(self._order) else None
        many = self._buckets
        # NumPy would compare with what is beyond its integers as with a float.
        if len(many) and at_least <= INT64_MAX:
            at = int(many.searchsorted(at_least))
            if at < len(many) and (found is None or many[at] < found):
                return many.item(at)
        return found

    def buckets(self, low: int, high: int) -> list[int]:
        """The buckets from `low` to `high`, both included, ascending."""
        few = self._order[bisect_left(self._order, low) : bisect_left(self._order, high + 1)]
        many = self._buckets
        if not len(many):
            return few
        rows = many[many.searchsorted(low) : many.searchsorted(high, "right")]
        return sorted({*few, *rows.tolist()})

    @property
    def _few_max(self) -> int:
        return max(_FEW_MAX, len(self._buckets) // _SHARE)

    def _is_among_many(self, bucket: int) -> bool:
        many = self._buckets
        at = int(many.searchsorted(bucket)) if len(many) else 0
        return at < len(many) and many.item(at) == bucket

    def _rows_of(self, bucket: int) -> slice:
        """Where a bucket is among the many."""
        many = self._buckets
        return slice(int(many.searchsorted(bucket)), int(many.searchsorted(bucket, "right")))

    def _move(self) -> None:
        """Put the few among the many."""
        pairs = [(bucket, one) for bucket in sorted(self._few) for one in self._few[bucket]]
        buckets, segments = np.array(pairs, np.int64).T
        at = self._buckets.searchsorted(buckets)
        self._buckets = np.insert(self._buckets, at, buckets)
        self._segments = np.insert(self._segments, at, segments)
        self._few.clear()
        self._order = []
