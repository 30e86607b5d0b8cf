"""Counts what a cut would consume, reading only the frames it splits."""

from __future__ import annotations

from tidemill.files.cursor import Cursor
from tidemill.files.cut import Cut
from tidemill.files.folder import Folder
from tidemill.files.frame_table import Entry


def count_covered(folder: Folder, cursor: Cursor, cut: Cut) -> int:
    """How many items of the fork the cut covers. The caller holds the cursor's lock."""
    with folder.guard:
        low, high = folder.bucket_of(cut.low), folder.bucket_of(cut.high)
        found = [
            cursor.live_frames(folder.index.frames(b)) for b in folder.index.buckets(low, high)
        ]
    return sum(_count(cursor, entry, cut) for frames in found for entry in frames)


def _count(cursor: Cursor, entry: Entry, cut: Cut) -> int:
    if not cut.touches_box(-1, entry.keys, entry.seqs):
        return 0
    is_whole = (
        cut.low <= entry.key_min
        and cut.arrived >= entry.seq_max
        and (cut.high, cut.seq) >= (entry.key_max, entry.seq_max)
    )
    if is_whole and not cursor.fork.cuts.touching(entry.place, entry.keys, entry.seqs):
        return entry.rows
    run = cursor.read_live(entry)
    keys, seqs = run.keys[run.position :], run.seqs[run.position :]
    return int(cut.mask(keys, seqs).sum())
