"""Keys divided into ranges of about equal size. Pure.

    frames   ├──── a ────┤     ├─ c ─┤
                 ├──── b ────┤
    ranges   │     1     │  2   │ 3  │

A frame tells its least and its greatest key; its bytes are taken to be spread evenly between. A
range that turns out larger is divided again by the task that reads it.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.limits import INT64_MAX, INT64_MIN

Numbers: TypeAlias = npt.NDArray[np.int64]

_POINTS = 16  # at which the bytes of a frame are taken to lie
# The greatest float below 2**63: rounding must not leave the whole numbers there are.
_FLOAT_MAX = float(2**63 - 1024)


class KeyRange(NamedTuple):
    """Keys from the least to the greatest, both included."""

    low: int
    high: int

    def halves(self, key: int) -> tuple[KeyRange, KeyRange]:
        """Two ranges, the first of which ends at `key`.

        >>> KeyRange(1, 9).halves(5)
        (KeyRange(low=1, high=5), KeyRange(low=6, high=9))
        """
        return KeyRange(self.low, key), KeyRange(key + 1, self.high)


def key_ranges(
    lows: Numbers,  # the least key of each frame
    highs: Numbers,  # ... the greatest
    sizes: Numbers,  # ... its bytes
    *,
    after: int | None,  # the greatest key that was dealt with before; None: none was
    range_bytes: int,
) -> list[tuple[KeyRange, int]]:
    """(range, about how many bytes it has), ascending; together they hold every key after `after`.

    >>> lows, highs = np.array([0, 100]), np.array([99, 199])
    >>> [tuple(found) for found, _ in key_ranges(lows, highs, np.array([10, 10]), after=-1, \
range_bytes=10)]
    [(0, 99), (100, 9223372036854775807)]
    >>> key_ranges(lows[:0], highs[:0], lows[:0], after=None, range_bytes=10)
    []
    """
    if not len(lows):
        return []
    first = INT64_MIN if after is None else after + 1
    # Floats, because the distance of two keys may exceed what an int64 holds. A cut may be any key.
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    low = np.maximum(lows, first).astype(np.float64)
    points = low[:, None] + (highs.astype(np.float64) - low)[:, None] * shares
    points = np.clip(points, -_FLOAT_MAX, _FLOAT_MAX).ravel()
    weights = np.repeat(sizes / _POINTS, _POINTS)
    order = np.argsort(points, kind="stable")
    points, before = points[order], np.cumsum(weights[order])
    total = before[-1]
    count = max(int(-(-total // range_bytes)), 1)
    wanted = total * np.arange(1, count) / count
    # The last point that still belongs to a range, and not the first of the next one.
    at = np.minimum(before.searchsorted(wanted * (1 + 1e-12), "right"), len(points) - 1)
    middle = (points[np.maximum(at - 1, 0)] + points[at]) / 2
    cuts = np.unique(middle.astype(np.int64)).tolist()
    edges = [first - 1, *[cut for cut in cuts if first <= cut < INT64_MAX], INT64_MAX]
    size = int(total) // (len(edges) - 1)
    return [(KeyRange(low + 1, high), size) for low, high in pairwise(edges)]
