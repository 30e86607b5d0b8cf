"""Cuts: which items a fork has consumed. Pure.

A cut (arrived, low, high, seq) of a fork covers the rows with

    seq <= arrived   and   low <= key   and   (key, seq) <= (high, cut seq)

in the frames that stood in the journal before it. A take, the cut of a pop, has no lower bound; a delete bounds keys
on both sides; a clear covers all. `arrived` is fixed when the read begins, so that an item pushed meanwhile stays, even
if its key is smaller.

    key ▲                                    each new take has the greatest `arrived`; it covers the
        │ ■■■■■■■■■■■■■■┐ take 1             older ones whose corner lies below its own. What is left
        │ ■■■■■■■■■■■■■■│                    is a staircase that falls as `arrived` grows, kept as a
        │ ■■■■■■■■■■■■■■└──────┐ take 2      stack, so that adding a take costs O(1) over time.
        │ ■■■■■■■■■■■■■■■■■■■■■└───┐ take 3
        └────────────────────────────────▶ seq

Frames carried forward hold only rows that were not covered then, so older cuts never apply to them: hence "before it".
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tidemill.errors import Corrupt
from tidemill.files.frame_table import FrameList
from tidemill.limits import INT64_MAX, INT64_MIN

_FIELDS = struct.Struct("<IIqqqqq")


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

    def covers_cut(self, other: Cut) -> bool:
        """Whether every row that `other` covers is covered by this cut as well."""
        return (
            self.place >= other.place
            and self.arrived >= other.arrived
            and self.low <= other.low
            and (self.high, self.seq) >= (other.high, other.seq)
        )

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
    return fork, Cut(place, arrived, low, high, seq), rows


class Cuts:
    """All the cuts of one fork that still matter."""

    __slots__ = ("_deletes", "_takes")

    def __init__(self, cuts: tuple[Cut, ...] = ()) -> None:
        self._takes: list[Cut] = []
        self._deletes: list[Cut] = []
        for cut in sorted(cuts):
            self.add(cut)

    def __len__(self) -> int:
        return len(self._takes) + len(self._deletes)

    def copy(self) -> Cuts:
        twin = Cuts()
        twin._takes = self._takes.copy()
        twin._deletes = self._deletes.copy()
        return twin

    def all(self) -> list[Cut]:
        return sorted(self._takes + self._deletes)

    def add(self, cut: Cut) -> None:
        if self._deletes:
            self._deletes = [old for old in self._deletes if not cut.covers_cut(old)]
        if not cut.is_take:
            self._deletes.append(cut)
            return
        takes = self._takes
        while takes and cut.covers_cut(takes[-1]):
            takes.pop()
        takes.append(cut)

    def replace_by(self, cut: Cut) -> None:
        """Let one cut stand for all: the fork is empty."""
        self._takes = [cut]
        self._deletes = []

    def keep_if(self, needed: list[bool]) -> None:
        """Drop the cuts of `all()` that no frame needs any more."""
        kept = [cut for cut, wanted in zip(self.all(), needed, strict=True) if wanted]
        self._takes = [cut for cut in kept if cut.is_take]
        self._deletes = [cut for cut in kept if not cut.is_take]

    def covered(self, frames: FrameList) -> NDArray[np.bool_]:
        """Which frames one cut alone covers. Takes are closed downwards, so a frame that was popped has such a cut."""
        rows, places = frames.rows, frames.places
        covered = np.zeros(len(frames), np.bool_)
        for cut in self._takes + self._deletes:
            below = (rows["key_max"] < cut.high) | (
                (rows["key_max"] == cut.high) & (rows["seq_max"] <= cut.seq)
            )
            covered |= (
                below
                & (rows["seq_max"] <= cut.arrived)
                & (rows["key_min"] >= cut.low)
                & (places < cut.place)
            )
        return covered

    def touching(self, place: int, keys: tuple[int, int], seqs: tuple[int, int]) -> list[Cut]:
        """The cuts that may cover rows of the box."""
        found = [cut for cut in self._takes if cut.touches_box(place, keys, seqs)]
        if self._deletes:
            found += [cut for cut in self._deletes if cut.touches_box(place, keys, seqs)]
        return found


def cover_all(place: int, arrived: int) -> Cut:
    """The cut of a clear: everything that has arrived."""
    return Cut(place, arrived, INT64_MIN, INT64_MAX, INT64_MAX)
