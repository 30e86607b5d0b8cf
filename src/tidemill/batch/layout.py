"""Where rows lie: how many there are in each frame, and what they take. Pure.

Whoever divides the rows of a queue among several readers goes by this, so that no frame is read
twice without need and everybody has about as much to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Numbers: TypeAlias = NDArray[np.int64]


class Layout(NamedTuple):
    """Frames in the order of their first rows, as columns.

    >>> layout = Layout.of([(1, 10, 400), (11, 5, 100)])
    >>> layout.rows.tolist(), layout.sizes.tolist(), len(Layout.of([]).firsts)
    ([10, 5], [400, 100], 0)
    """

    firsts: Numbers  # the seq of the first row of each frame
    rows: Numbers
    sizes: Numbers  # in bytes, as stored

    @classmethod
    def of(cls, frames: Iterable[tuple[int, int, int]]) -> Layout:
        """From (first seq, rows, bytes) of each frame, in that order."""
        table = np.array(list(frames), np.int64).reshape(-1, 3)
        return cls(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())

    @classmethod
    def joined(cls, parts: list[Layout]) -> Layout:
        """Several that follow each other, as one."""
        if not parts:
            return cls.of([])
        return cls(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
