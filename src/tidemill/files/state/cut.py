"""Cuts: which items a fork has consumed. Pure.

A cut (arrived, low, high, seq) of a fork covers the rows with

    seq <= arrived   and   low <= key   and   (key, seq) <= (high, cut seq)

in the frames that stood in the journal before it. A take, the cut of a pop, has no lower bound; a
delete bounds keys on both sides; a clear covers all. `arrived` is fixed when the read begins, so
that an item pushed meanwhile stays, even if its key is smaller.

    key ▲                                    each new take has the greatest `arrived`; it covers the
        │ ■■■■■■■■■■■■■■┐ take 1             older ones whose corner lies below its own. What is
        │ ■■■■■■■■■■■■■■│                    left is a staircase that falls with `arrived`, kept as
        │ ■■■■■■■■■■■■■■└──────┐ take 2      a stack, so that adding a take costs O(1) over time.
        │ ■■■■■■■■■■■■■■■■■■■■■└───┐ take 3
        └────────────────────────────────▶ seq

Frames carried forward hold only rows that were not covered then, so older cuts never apply to them:
hence "before it".
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from itertools import islice
from operator import itemgetter
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.errors import Corrupt
from tidemill.files.format.frame_table import FrameList
from tidemill.files.state.deletes import Deletes
from tidemill.limits import INT64_MAX, INT64_MIN

_FIELDS = struct.Struct("<IIqqqqq")
CUT_BYTES = _FIELDS.size
_NOWHERE = (INT64_MIN, 0)  # a (key, seq) before every row
NO_OTHERS: NDArray[np.int64] = np.empty((5, 0), np.int64)
_arrived = itemgetter(1)  # of a cut
_Column: TypeAlias = NDArray[np.int64]


class Cut(NamedTuple):
    """One consumed region."""

    place: int
    arrived: int
    low: int
    high: int
    seq: int

    @property
    def is_take(self) -> bool:
        return self.low == INT64_MIN

    def touches_box(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> bool:
        """Whether a row within these bounds could be covered."""
        return (
            self.place > place
            and self.arrived >= seqs[0]
            and self.low <= keys[1]
            and (self.high, self.seq) >= (keys[0], seqs[0])
        )

    def mask(self, keys: NDArray[np.int64], seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows of a frame that stood before this cut are covered."""
        covered = (keys < self.high) | ((keys == self.high) & (seqs <= self.seq))
        covered &= seqs <= self.arrived
        if self.low != INT64_MIN:
            covered &= keys >= self.low
        return covered


def pack_cut(fork: int, cut: Cut, rows: int) -> bytes:
    return _FIELDS.pack(fork, 0, cut.arrived, cut.low, cut.high, cut.seq, rows)


def unpack_cut(payload: bytes | memoryview, place: int) -> tuple[int, Cut, int]:
    """(fork id, cut, number of rows it consumed)."""
    if len(payload) != _FIELDS.size:
        raise Corrupt(f"a cut has {_FIELDS.size} bytes, not {len(payload)}")
    fork, _, arrived, low, high, seq, rows = _FIELDS.unpack(payload)
    if not 0 <= rows <= arrived:
        raise Corrupt(f"a cut consumes {rows} of the {arrived} items that had arrived")
    return fork, Cut(place, arrived, low, high, seq), rows


class Cuts:
    """All the cuts of one fork that still matter.

    Invariant: along `_takes`, place and `arrived` grow and (high, seq) falls, so that the takes
    that touch a frame lie next to each other and are found by bisection, however many there are.
    """

    __slots__ = ("_columns", "_others", "_takes")

    def __init__(self, cuts: tuple[Cut, ...] = ()) -> None:
        self._takes: list[Cut] = []
        self._others = Deletes()
        self._columns: NDArray[np.int64] | None = None  # of the takes, until they change
        for cut in sorted(cuts):
            self.add(cut)

    def __len__(self) -> int:
        return len(self._takes) + len(self._others)

    def copy(self) -> Cuts:
        twin = Cuts()
        twin._takes = self._takes.copy()
        twin._others = self._others.copy()
        return twin

    def all(self) -> list[Cut]:
        return sorted([*self._takes, *map(Cut._make, self._others.all())])

    def add(self, cut: Cut) -> None:
        """Note a cut; it was made after all the others."""
        if cut.high < cut.low:
            return  # It covers nothing.
        if self._others:
            self._others.drop_covered(cut)
        takes = self._takes
        if not cut.is_take or (takes and cut.arrived < takes[-1].arrived):
            self._others.add(cut)
            return
        # Of two takes, the later one covers the other if it reaches as far.
        while takes and takes[-1][3:] <= cut[3:]:
            takes.pop()
        takes.append(cut)
        self._columns = None

    def replace_by(self, cut: Cut) -> None:
        """Let one cut stand for all: the fork is empty."""
        self._takes = [cut]
        self._others = Deletes()
        self._columns = None

    def made_since(self, before: Cuts) -> list[Cut]:
        """Those that an earlier copy does not have."""
        known = set(before.all())
        return [cut for cut in self.all() if cut not in known]

    def keep_if(self, needed: list[bool]) -> None:
        """Drop the cuts of `all()` that no frame needs any more."""
        kept = {cut for cut, wanted in zip(self.all(), needed, strict=True) if wanted}
        self._takes = [cut for cut in self._takes if cut in kept]
        self._others.keep_if([Cut._make(cut) in kept for cut in self._others.all()])
        self._columns = None

    def covered(self, frames: FrameList) -> NDArray[np.bool_]:
        """Which frames one cut alone covers. Takes are closed downwards, so a frame that was popped
        has such a cut.
        """
        rows, places = frames.rows, frames.places
        covered = self._taken(places, rows["seq_max"], rows["key_max"], rows["seq_max"])
        if self._others:
            covered |= self._others.covered(frames)
        return covered

    def touched(self, frames: FrameList) -> NDArray[np.bool_]:
        """Which frames have cuts that may cover rows of them, as `touching` finds them."""
        rows, places = frames.rows, frames.places
        touched = self._taken(places, rows["seq_min"], rows["key_min"], rows["seq_min"])
        if self._others:
            touched |= self._others.touched(frames)
        return touched

    def touching(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> list[Cut]:
        """The cuts that may cover rows of the box."""
        others = self.others_touching(place, keys, seqs)
        return [*self.takes_touching(place, keys, seqs), *map(Cut._make, others.T.tolist())]

    def touches(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> bool:
        """Whether a cut may cover rows of the box."""
        return bool(
            self.takes_touching(place, keys, seqs)
            or self.others_touching(place, keys, seqs).shape[1]
        )

    def takes_touching(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> list[Cut]:
        """The takes that may cover rows of the box."""
        least = keys[0], seqs[0]
        found = []
        for take in islice(self._takes, self._first_take(place, seqs[0]), None):
            if (take.high, take.seq) < least:
                break
            found.append(take)
        return found

    def others_touching(
        self, place: int, keys: tuple[int, int], seqs: tuple[int, int]
    ) -> NDArray[np.int64]:
        """The others that may, of which there may be thousands: the fields of a cut by column."""
        return self._others.touching(place, keys, seqs) if self._others else NO_OTHERS

    def reach(self, seq: int) -> tuple[int, int]:
        """A (key, seq) that no cut reaches beyond which was made after `seq` arrived."""
        reach = self._others.reach(seq) if self._others else _NOWHERE
        # Of the takes that came late enough, the first one reaches the furthest.
        for take in islice(self._takes, bisect_left(self._takes, seq, key=_arrived), None):
            return max(reach, take[3:])
        return reach

    def _taken(
        self, places: _Column, arrived_min: _Column, keys: _Column, seqs: _Column
    ) -> NDArray[np.bool_]:
        """For each frame, given by its place, whether a take that came after `arrived_min` reaches
        the row (key, seq).
        """
        if not self._takes:
            return np.zeros(len(places), np.bool_)
        # Of the takes that came late enough for a frame, the first one reaches the furthest.
        place, arrived, high, seq = self._take_columns()
        first = np.maximum(
            arrived.searchsorted(arrived_min, "left"), place.searchsorted(places, "right")
        )
        found = first < len(place)
        first = np.minimum(first, len(place) - 1)
        reached = (keys < high[first]) | ((keys == high[first]) & (seqs <= seq[first]))
        return np.asarray(found & reached, np.bool_)

    def _first_take(self, place: int, seq: int) -> int:
        """The index of the first take that came behind `place` and after `seq` arrived."""
        takes = self._takes
        if len(takes) < 2:
            return 0 if takes and takes[0].place > place and takes[0].arrived >= seq else len(takes)
        return max(
            bisect_left(takes, seq, key=_arrived),
            bisect_right(takes, place, key=lambda take: take.place),
        )

    def _take_columns(self) -> NDArray[np.int64]:
        """Places, `arrived`s, highs and seqs of the takes."""
        if self._columns is None:
            columns = [(take.place, take.arrived, take.high, take.seq) for take in self._takes]
            self._columns = np.array(columns, np.int64).T.copy()
        return self._columns


def cover_all(place: int, arrived: int) -> Cut:
    """The cut of a clear: everything that has arrived."""
    return Cut(place, arrived, INT64_MIN, INT64_MAX, INT64_MAX)
