"""Counts what a cut would consume, reading only the frames it splits, and what damage leaves."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from tidemill.files.folder.view import View
from tidemill.files.format.frame_table import Entry, FrameList
from tidemill.files.format.record import ENVELOPE_BYTES, padded
from tidemill.files.journal.scan import Damage
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.state.bucket import Custom
from tidemill.files.state.cut import Cut, cover_all
from tidemill.limits import INT64_MAX, INT64_MIN


def count_left(
    folder: View, cursors: Iterable[Cursor], damages: dict[int, Damage], arrived: int
) -> dict[int, int]:
    """How many items up to the seq `arrived` each fork has left without damaged records, which are
    given by place; those that turn out to be damaged join them. The caller holds the cursors.
    """
    everything = cover_all(0, arrived)
    while True:
        try:
            return {
                cursor.fork.id: count_covered(folder, cursor, everything, damages)
                for cursor in cursors
            }
        except DamagedFrame as another:
            damages[another.entry.place] = damage_of(another)


def damage_of(found: DamagedFrame) -> Damage:
    """A frame that could not be read, as the scan of its segment would have found it."""
    entry = found.entry
    return Damage(entry.place, padded(ENVELOPE_BYTES + entry.length), entry.rows, found.reason)


def count_covered(
    folder: View, cursor: Cursor, cut: Cut, without: Collection[int] = frozenset()
) -> int:
    """How many items of the fork the cut covers, but for frames at these places. The caller holds
    the cursor's lock.
    """
    low, high = bucket_bounds(folder, cut.low, cut.high)
    with folder.guard:
        buckets = folder.index.buckets(low, high)
    rows = 0
    for bucket in buckets:
        # One bucket at a time: their frames together may be more than memory should hold.
        ahead = folder.index.read_ahead(bucket, folder.guard)
        with folder.guard:
            frames = cursor.live_frames(folder.index.frames(bucket, ahead))
        if without:
            frames = frames.without(without)
        rows += sum(_count(cursor, entry, cut) for entry in frames.where(_reached(frames, cut)))
    return rows


def _reached(frames: FrameList, cut: Cut) -> NDArray[np.bool_]:
    """Which frames may hold rows that the cut covers."""
    rows = frames.rows
    reached = (rows["key_min"] <= cut.high) & (rows["key_max"] >= cut.low)
    return np.asarray(reached & (rows["seq_min"] <= cut.arrived), np.bool_)


def bucket_bounds(folder: View, low: int, high: int) -> tuple[int, int]:
    """The buckets that hold the keys from `low` to `high`."""
    if isinstance(folder.bucket, Custom):
        # The user's own function need only be right for keys that were pushed.
        return INT64_MIN, INT64_MAX
    return folder.bucket.of(low), folder.bucket.of(high)


def _count(cursor: Cursor, entry: Entry, cut: Cut) -> int:
    if not cut.touches_box(-1, entry.keys, entry.seqs):
        return 0
    is_whole = (
        cut.low <= entry.key_min
        and cut.arrived >= entry.seq_max
        and (cut.high, cut.seq) >= (entry.key_max, entry.seq_max)
    )
    if is_whole and not cursor.fork.cuts.touches(entry.place, entry.keys, entry.seqs):
        return entry.rows
    run = cursor.read_live(entry)
    keys, seqs = run.keys[run.position :], run.seqs[run.position :]
    return int(cut.mask(keys, seqs).sum())
