"""The cuts of a fork that are no takes in line, which deletes are, as columns. Pure.

There may be thousands of them, and whoever reads a frame asks which ones touch it. So they are kept
in layers, within each of which none overlaps another, by their lower bound. Then one alone can
cover a given frame: the last that begins before it. One that came later, and reaches as far as
another, takes its place, so that few overlap in one place, and a few layers do. What fits into none
of them, such as deletes of all that is due from a later time on, lies on a pile, all of which is
looked at each time.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.files.format.frame_table import FrameList
from tidemill.limits import INT64_MIN

Region: TypeAlias = tuple[int, int, int, int, int]  # place, arrived, low, high, seq: see `cut`
_Column: TypeAlias = NDArray[np.int64]
_Mask: TypeAlias = NDArray[np.bool_]

_LAYERS_MAX = 2  # each of which costs whoever asks about as much as a pile of a thousand
_CELLS_MAX = 2**17  # frames times deletes of the pile that are looked at in one go
_NONE: NDArray[np.int64] = np.empty((5, 0), np.int64)


class Deletes:
    """Cuts in any number.

    >>> deletes = Deletes()
    >>> deletes.add((64, 10, 5, 7, 99))
    >>> [len(deletes.touching(0, keys, (1, 3)).T) for keys in ((7, 9), (8, 9))]
    [1, 0]
    """

    __slots__ = ("_layers", "_pile")

    def __init__(self) -> None:
        # The fields of a cut in each column, which are replaced and never changed.
        self._layers: list[NDArray[np.int64]] = []
        self._pile = _NONE

    def __len__(self) -> int:
        return sum([layer.shape[1] for layer in self._layers]) + self._pile.shape[1]

    def copy(self) -> Deletes:
        twin = Deletes()
        twin._layers, twin._pile = self._layers.copy(), self._pile
        return twin

    def all(self) -> list[list[int]]:
        return [cut for table in (*self._layers, self._pile) for cut in table.T.tolist()]

    def add(self, cut: Region) -> None:
        low, high = cut[2], cut[3]
        for number, layer in enumerate(self._layers):
            at = int(layer[2].searchsorted(low, "right"))
            is_behind = not at or layer[3, at - 1] < low
            if is_behind and (at == layer.shape[1] or high < layer[2, at]):
                self._layers[number] = np.insert(layer, at, cut, axis=1)
                return
        column = np.array([cut], np.int64).T.copy()
        if len(self._layers) < _LAYERS_MAX:
            self._layers.append(column)
        else:
            self._pile = np.concatenate([self._pile, column], axis=1)

    def drop_covered(self, cut: Region) -> None:
        """Forget those that cover nothing but what this cut, the latest, covers as well."""
        last = np.int64(cut[3]), np.int64(cut[4])
        kept = []
        for table in (*self._layers, self._pile):
            place, arrived, low, high, seq = table
            covered = _reaches(*last, high, seq) & (low >= cut[2])
            covered &= (arrived <= cut[1]) & (place <= cut[0])
            kept.append(table[:, ~covered] if covered.any() else table)
        self._replace(kept)

    def keep_if(self, needed: list[bool]) -> None:
        """Drop those of `all()` that are not needed."""
        mask = np.array(needed, np.bool_)
        kept = []
        for table in (*self._layers, self._pile):
            kept.append(table[:, mask[: table.shape[1]]])
            mask = mask[table.shape[1] :]
        self._replace(kept)

    def _replace(self, tables: list[NDArray[np.int64]]) -> None:
        *layers, self._pile = tables
        self._layers = [layer for layer in layers if layer.shape[1]]

    def covered(self, frames: FrameList) -> _Mask:
        """Which frames one of them alone covers."""
        rows, places = frames.rows, frames.places
        covered = np.zeros(len(places), np.bool_)
        for layer in self._layers:
            last = layer[2].searchsorted(rows["key_min"], "right") - 1
            found = _holds(layer[:, last], places, rows["key_max"], rows["seq_max"])
            covered |= (last >= 0) & found
        return self._piled(frames, covered, "key_min", "key_max", "seq_max")

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
        return self._piled(frames, touched, "key_max", "key_min", "seq_min")

    def _piled(self, frames: FrameList, known: _Mask, low: str, key: str, seq: str) -> _Mask:
        """`known`, and for which frames one of the pile begins at their `low` or before, and
        reaches their (key, seq).
        """
        pile = self._pile
        if not pile.shape[1]:
            return known
        rows, places = frames.rows, frames.places
        # Frames that came since the last of them are as they were pushed.
        asked = np.flatnonzero(~known & (places < pile[0].max()))
        step = max(_CELLS_MAX // pile.shape[1], 1)
        for start in range(0, len(asked), step):
            at = asked[start : start + step]
            some = rows[at]
            found = _holds(
                pile[:, None, :], places[at, None], some[key][:, None], some[seq][:, None]
            )
            known[at] = (found & (pile[2] <= some[low][:, None])).any(axis=1)
        return known

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
        if self._pile.shape[1]:
            some = self._pile[:, self._pile[2] <= keys[1]]
            found.append(some[:, _holds(some, np.int64(place), *least)])
        return np.concatenate(found, axis=1) if found else _NONE

    def reach(self, seq: int) -> tuple[int, int]:
        """The (key, seq) that those made after `seq` arrived reach to."""
        reach = INT64_MIN, 0
        for layer in self._layers:
            late = np.flatnonzero(layer[1] >= seq)
            if len(late):
                reach = max(reach, (int(layer[3, late[-1]]), int(layer[4, late[-1]])))
        piled = self._pile[3:, self._pile[1] >= seq]
        if piled.shape[1]:
            high = piled[0].max()
            reach = max(reach, (int(high), int(piled[1, piled[0] == high].max())))
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
