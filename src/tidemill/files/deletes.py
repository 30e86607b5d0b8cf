"""The cuts of a fork that are no takes in line, which deletes are, as columns. Pure.

There may be thousands of them, and whoever reads a frame asks which ones touch it. So they are kept
in layers, within each of which none overlaps another, by their lower bound. Then one alone can
cover a given frame: the last that begins before it. There are as many layers as deletes overlap in
one place, which are few: one that came later, and reaches as far as another, takes its place.
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

    __slots__ = ("_layers",)

    def __init__(self) -> None:
        # The fields of a cut in each column, which are replaced and never changed.
        self._layers: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return sum([layer.shape[1] for layer in self._layers])

    def copy(self) -> Deletes:
        twin = Deletes()
        twin._layers = self._layers.copy()
        return twin

    def all(self) -> list[list[int]]:
        return [cut for layer in self._layers for cut in layer.T.tolist()]

    def add(self, cut: Region) -> None:
        low, high = cut[2], cut[3]
        for number, layer in enumerate(self._layers):
            at = int(layer[2].searchsorted(low, "right"))
            is_behind = not at or layer[3, at - 1] < low
            if is_behind and (at == layer.shape[1] or high < layer[2, at]):
                self._layers[number] = np.insert(layer, at, cut, axis=1)
                return
        self._layers.append(np.array([cut], np.int64).T.copy())

    def drop_covered(self, cut: Region) -> None:
        """Forget those that cover nothing but what this cut, the latest, covers as well."""
        last = np.int64(cut[3]), np.int64(cut[4])
        kept = []
        for layer in self._layers:
            place, arrived, low, high, seq = layer
            covered = _reaches(*last, high, seq) & (low >= cut[2])
            covered &= (arrived <= cut[1]) & (place <= cut[0])
            kept.append(layer[:, ~covered] if covered.any() else layer)
        self._layers = [layer for layer in kept if layer.shape[1]]

    def keep_if(self, needed: list[bool]) -> None:
        """Drop those of `all()` that are not needed."""
        mask = np.array(needed, np.bool_)
        kept = []
        for layer in self._layers:
            kept.append(layer[:, mask[: layer.shape[1]]])
            mask = mask[layer.shape[1] :]
        self._layers = [layer for layer in kept if layer.shape[1]]

    def covered(self, frames: FrameList) -> _Mask:
        """Which frames one of them alone covers."""
        rows, places = frames.rows, frames.places
        covered = np.zeros(len(places), np.bool_)
        for layer in self._layers:
            last = layer[2].searchsorted(rows["key_min"], "right") - 1
            found = _holds(layer[:, last], places, rows["key_max"], rows["seq_max"])
            covered |= (last >= 0) & found
        return covered

    def touched(self, frames: FrameList) -> _Mask:
        """Which frames have rows that one of them may cover."""
        rows, places = frames.rows, frames.places
        touched = np.zeros(len(places), np.bool_)
        for layer in self._layers:
            stop = layer[2].searchsorted(rows["key_max"], "right")
            # Of a layer, those before the first reach less far, and those behind the last begin
            # beyond. Mostly the last one touches; where it does not, the others are asked.
            first = layer[3].searchsorted(rows["key_min"], "left")
            last = np.maximum(stop - 1, 0)
            found = _holds(layer[:, last], places, rows["key_min"], rows["seq_min"])
            touched |= (first < stop) & found
            for at in np.flatnonzero(~touched & (first < last)).tolist():
                some = layer[:, first[at] : stop[at]]
                row = rows[at]
                touched[at] = _holds(some, places[at], row["key_min"], row["seq_min"]).any()
        return touched

    def touching(
        self, place: int, keys: tuple[int, int], seqs: tuple[int, int]
    ) -> NDArray[np.int64]:
        """Those that may cover rows of a frame, as columns."""
        least = np.int64(keys[0]), np.int64(seqs[0])
        found = []
        for layer in self._layers:
            first = layer[3].searchsorted(keys[0], "left")
            some = layer[:, first : layer[2].searchsorted(keys[1], "right")]
            found.append(some[:, _holds(some, np.int64(place), *least)])
        return np.concatenate(found, axis=1) if found else np.empty((5, 0), np.int64)

    def reach(self, seq: int) -> tuple[int, int]:
        """The (key, seq) that those made after `seq` arrived reach to."""
        reach = INT64_MIN, 0
        for layer in self._layers:
            late = np.flatnonzero(layer[1] >= seq)
            if len(late):
                reach = max(reach, (int(layer[3, late[-1]]), int(layer[4, late[-1]])))
        return reach


def _holds(
    cuts: _Column, places: _Column | np.int64, key: _Column | np.int64, seq: _Column | np.int64
) -> _Mask:
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
