"""Gives disk back: what of some segments is still needed is carried forward, and they go.

The survivors are sorted together, bucket by bucket, and written as few large frames with their own
seqs and times. So this also merges tiny frames and small segments, and lets old cuts go: a carried
frame holds only rows that its audience has not consumed, so only later cuts apply to it.

    1. the survivors are read and encoded while everybody works on
    2. every fork is held still, for a moment; pushes go on
    3. the survivors, the cuts that forks made meanwhile, and the record that retires the segments
       are one operation, synced
    4. only then are they unlinked; recovery does that too, if it finds record and files
"""

from __future__ import annotations

import numpy as np

from tidemill.errors import DiskFull
from tidemill.files.commit.operation import Retire
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.folder import Folder
from tidemill.files.sharing.pointers import least_pointer, sync_pointers
from tidemill.files.upkeep.shelf import Shelf
from tidemill.files.upkeep.survivors import Survivors

_SHARE = 16  # the part of a segment that is worth one of its own


def retire_dead(folder: Folder, numbers: list[int]) -> None:
    """Remove segments that no fork needs."""
    _make_last(folder)
    try:
        folder.commit(Retire(numbers))
    except DiskFull:
        if len(numbers) == 1 or folder.journal.failure is not None:
            raise
        # What is left of the last segment may have no room to name them all; the first to go make
        # some for the others.
        half = len(numbers) // 2
        retire_dead(folder, numbers[:half])
        retire_dead(folder, numbers[half:])
        return
    _remove(folder, numbers)


def carry(folder: Folder, *segments: int, apart: bool = False) -> None:
    """Rewrite the survivors of sealed segments, then remove these. `apart`: in a segment of their
    own, unless they are few, or they would be rewritten again with the tiny frames around them.
    """
    while not _try_carry(folder, list(segments), apart=apart):
        pass  # A fork or consumer came or went meanwhile, so the survivors are others now.


def _try_carry(folder: Folder, segments: list[int], *, apart: bool) -> bool:
    with folder.guard:
        cursors = [folder.cursors[fork] for fork in sorted(folder.cursors)]
        cuts = [cursor.fork.cuts.copy() for cursor in cursors]
    acked = _acked(folder)
    survivors = Survivors(folder, cursors, cuts, acked)
    frames = survivors.of(segments, Shelf(folder.fs, folder.journal.folder))
    _make_last(folder)
    with folder.all_cursors() as present:
        # Looked at again, for a consumer that began meanwhile: see `pointers`.
        if present != cursors or _acked(folder) < acked:
            return False
        since = [
            (cursor.fork.id, cut)
            for cursor, before in zip(cursors, cuts, strict=True)
            for cut in cursor.fork.cuts.made_since(before)
        ]
        new = survivors.audiences
        total = sum(frame.record_bytes for frame in frames)
        apart = apart and _SHARE * total >= folder.journal.segment_bytes
        folder.commit(Retire(segments, frames=frames, audiences=new, since=since, apart=apart))
    _remove(folder, segments)
    return True


def drop(folder: Folder, number: int) -> int:
    """Give up what is left in a sealed segment; returns the number of items lost to some fork."""
    with folder.all_cursors() as cursors:
        ahead = folder.index.read_segments_ahead([number], folder.guard)
        with folder.guard:
            frames = folder.index.frames_of_segment(number, ahead)
            arrived = folder.state.arrived
            live = {cursor.fork.id: cursor.fork.live for cursor in cursors}
        dropped = 0
        survivors = Survivors(folder, cursors, [cursor.fork.cuts for cursor in cursors])
        for entry in frames:
            masks = survivors.masks(entry)
            for cursor, mask in zip(cursors, masks, strict=True):
                live[cursor.fork.id] -= int(mask.sum())
            dropped += int(np.logical_or.reduce(masks).sum())
        folder.commit(Retire([number], live=live, arrived=arrived, dropped=dropped))
    _remove(folder, [number])
    return dropped


def _make_last(folder: Folder) -> None:
    """Have on disk what lets segments go: the record that retires them may get there first, and
    without the takes and acks before it, nobody would find what they were of.
    """
    folder.journal.sync_ahead()
    with storage_errors("syncing the consumers of", folder.path):
        sync_pointers(folder.fs, folder.path)


def _acked(folder: Folder) -> int:
    """Up to which seq all consumers are done."""
    with storage_errors("reading the consumers of", folder.path):
        return least_pointer(folder.fs, folder.path)


def _remove(folder: Folder, numbers: list[int]) -> None:
    folder.journal.remove(numbers)
    with folder.guard:
        folder.drop_moot_cuts()
