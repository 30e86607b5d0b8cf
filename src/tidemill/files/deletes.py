"""The cuts of a fork that are no takes in line, which deletes are, as columns. Pure.

There may be thousands of them, and whoever reads a frame asks which ones touch it. So they are kept
by their lower bound, and asked all at once. Mostly they do not overlap, and then one of them alone
can say of a frame whether it is covered: the last that begins before it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.files.frame_table import FrameList
from tidemill.limits import INT64_MIN

Region: TypeAlias = tuple[int, int, int, int, int]  # place, arrived, low, high, seq: see `cut`
_Column: TypeAlias = NDArray[np.int64]
_Mask: TypeAlias = NDArray[np.bool_]


class Deletes:
    """Cuts in any number.

    >>> deletes = Deletes()
    >>> deletes.add((64, 10, 5, 7, 99))
    >>> [len(deletes.touching(0, keys, (1, 3)).T) for keys in ((7, 9), (8, 9))]
    [1, 0]
    """

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: NDArray[np.int64] = np.empty((5, 0), np.int64)  # a column for each, by `low`

    def __len__(self) -> int:
        return self._table.shape[1]

    def copy(self) -> Deletes:
        twin = Deletes()
        twin._table = self._table  # It is replaced, never changed.
        return twin

    def all(self) -> list[list[int]]:
        found: list[list[int]] = self._table.T.tolist()
        return found

    def add(self, cut: Region) -> None:
        at = self._table[2].searchsorted(cut[2], "right")
        self._table = np.insert(self._table, at, cut, axis=1)

    def drop_covered(self, cut: Region) -> None:
        """Forget those that cover nothing but what this cut, the latest, covers as well."""
        place, arrived, low, high, seq = self._table
        covered = _reaches(np.int64(cut[3]), np.int64(cut[4]), high, seq) & (low >= cut[2])
        covered &= (arrived <= cut[1]) & (place <= cut[0])
        if covered.any():
            self._table = self._table[:, ~covered]

    def keep_if(self, needed: list[bool]) -> None:
        """Drop those of `all()` that are not needed."""
        self._table = self._table[:, np.array(needed, np.bool_)]

    def covered(self, frames: FrameList) -> _Mask:
        """Which frames one of them alone covers."""
        rows = frames.rows
        return self._any(frames.places, rows["key_min"], rows["key_max"], rows["seq_max"])

    def touched(self, frames: FrameList) -> _Mask:
        """Which frames have rows that one of them may cover."""
        rows = frames.rows
        return self._any(frames.places, rows["key_max"], rows["key_min"], rows["seq_min"])

    def touching(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> _Column:
        """Those that may cover rows of a frame, as columns."""
        places, arrived, low, high, seq = self._table
        found = (low <= keys[1]) & _reaches(high, seq, np.int64(keys[0]), np.int64(seqs[0]))
        found &= (arrived >= seqs[0]) & (places > place)
        return self._table[:, found]

    def reach(self, seq: int) -> tuple[int, int]:
        """The (key, seq) that those made after `seq` arrived reach to."""
        _, arrived, _, high, last = self._table
        late = arrived >= seq
        if not late.any():
            return INT64_MIN, 0
        furthest = high[late].max()
        return int(furthest), int(last[late & (high == furthest)].max())

    def _any(self, places: _Column, begin: _Column, key: _Column, seq: _Column) -> _Mask:
        """For each frame, whether there is one that begins at the key `begin` or before, came after
        the frame and its row `seq`, and reaches the row (`key`, `seq`).
        """
        found = np.zeros(len(places), np.bool_)
        last = self._table[2].searchsorted(begin, "right") - 1
        asked = np.flatnonzero(last >= 0)
        if not len(asked):
            return found
        at = last[asked]
        found[asked] = _holds(self._table[:, at], places[asked], key[asked], seq[asked])
        # Where others reach as far as well, they overlap it, and have to be asked.
        furthest = np.maximum.accumulate(self._table[3])
        overlapped = (at > 0) & (furthest[at - 1] >= key[asked]) & ~found[asked]
        for frame in asked[overlapped].tolist():
            others = self._table[:, : last[frame]]
            found[frame] = _holds(others, places[frame], key[frame], seq[frame]).any()
        return found


def _holds(cuts: _Column, places: _Column, key: _Column, seq: _Column) -> _Mask:
    """Whether cuts came after frames, and after the row `seq`, and reach the row (key, seq)."""
    place, arrived, _, high, last = cuts
    return (place > places) & (arrived >= seq) & _reaches(high, last, key, seq)


def _reaches(
    high: _Column | np.int64,
    last: _Column | np.int64,
    key: _Column | np.int64,
    seq: _Column | np.int64,
) -> _Mask:
    """Whether (high, last) is (key, seq) or behind it."""
    return np.asarray((high > key) | ((high == key) & (last >= seq)), np.bool_)
