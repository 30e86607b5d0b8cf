"""Gives disk back: what of a segment is still needed is carried forward, and the segment goes.

The survivors of a segment are sorted together, bucket by bucket, and written as few large frames
with their own seqs and times. So this also merges tiny frames, and lets old cuts go: a carried
frame holds only rows that its audience has not consumed, so only later cuts apply to it.

    1. the survivors are read and encoded while everybody works on
    2. every fork is held still, for a moment; pushes go on
    3. the survivors, the cuts that forks made meanwhile, and the record that retires the segment
       are one operation, synced
    4. only then is the segment unlinked; recovery does that too, if it finds record and file
"""

from __future__ import annotations

import time
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.batch import encode_body, int64_values
from tidemill.files.cursor import Cursor
from tidemill.files.cut import Cut, Cuts
from tidemill.files.draft import PreparedFrame
from tidemill.files.folder import Folder
from tidemill.files.frame_table import Entry, buckets_of
from tidemill.files.operation import Retire
from tidemill.files.pointers import least_pointer
from tidemill.files.run import Numbers, Run, joined
from tidemill.files.shelf import Shelf
from tidemill.files.state import EVERYONE
from tidemill.files.storage import storage_errors
from tidemill.limits import CARRY_BYTES, CARRY_ROWS_MAX, INT64_MAX

# For each fork the cuts that touch a frame, or None if the frame is not meant for it.
Consumed: TypeAlias = tuple[tuple[Cut, ...] | None, ...]

_FRAMES_PER_TURN = 16


def retire_dead(folder: Folder, numbers: list[int]) -> None:
    """Remove segments that no fork needs."""
    folder.commit(Retire(numbers))
    _remove(folder, numbers)


def carry(folder: Folder, number: int) -> None:
    """Rewrite the survivors of a sealed segment, then remove it."""
    while not _try_carry(folder, number):
        pass  # A fork or consumer came or went meanwhile, so the survivors are others now.


def _try_carry(folder: Folder, number: int) -> bool:
    with folder.guard:
        cursors = [folder.cursors[fork] for fork in sorted(folder.cursors)]
        cuts = [cursor.fork.cuts.copy() for cursor in cursors]
    acked = _acked(folder)
    carrier = _Carrier(folder, cursors, cuts, acked)
    frames = carrier.survivors(number)
    with folder.all_cursors() as present:
        # Looked at again, for a consumer that began meanwhile: see `pointers`.
        if present != cursors or _acked(folder) < acked:
            return False
        since = [
            (cursor.fork.id, cut)
            for cursor, before in zip(cursors, cuts, strict=True)
            for cut in cursor.fork.cuts.made_since(before)
        ]
        # Much that was merged must not lie among tiny frames, or it would be rewritten with them.
        apart = 2 * sum(frame.record_bytes for frame in frames) >= folder.journal.segment_bytes
        folder.commit(
            Retire([number], frames=frames, audiences=carrier.audiences, since=since, apart=apart)
        )
    _remove(folder, [number])
    return True


def drop(folder: Folder, number: int) -> int:
    """Give up what is left in a sealed segment; returns the number of items lost to some fork."""
    with folder.all_cursors() as cursors:
        with folder.guard:
            frames = folder.index.frames_of_segment(number)
            arrived = folder.state.arrived
            live = {cursor.fork.id: cursor.fork.live for cursor in cursors}
        dropped = 0
        carrier = _Carrier(folder, cursors, [cursor.fork.cuts for cursor in cursors])
        for entry in frames:
            masks = live_masks(folder.reader.read(entry), carrier.consumed(entry))
            for cursor, mask in zip(cursors, masks, strict=True):
                live[cursor.fork.id] -= int(mask.sum())
            dropped += int(np.logical_or.reduce(masks).sum())
        folder.commit(Retire([number], live=live, arrived=arrived, dropped=dropped))
    _remove(folder, [number])
    return dropped


def _acked(folder: Folder) -> int:
    """Up to which seq all consumers are done."""
    with storage_errors("reading the consumers of", folder.path):
        return least_pointer(folder.fs, folder.path)


def _remove(folder: Folder, numbers: list[int]) -> None:
    folder.journal.remove(numbers)
    with folder.guard:
        folder.drop_moot_cuts()


def live_masks(run: Run, consumed: Consumed) -> list[NDArray[np.bool_]]:
    """For each fork, which rows of a run it has yet to consume."""
    masks = []
    for cuts in consumed:
        mask = np.full(run.rows, cuts is not None)
        for cut in cuts or ():
            mask &= ~cut.mask(run.keys, run.seqs)
        masks.append(mask)
    return masks


class _Carrier:
    """Collects what forks still need of a segment."""

    def __init__(
        self,
        folder: Folder,
        cursors: list[Cursor],
        cuts: list[Cuts],
        acked: int = INT64_MAX,  # consumers need what has a greater seq
    ) -> None:
        self._folder = folder
        self._acked = acked
        self._cursors = cursors
        self._cuts = cuts  # of each, as they were at one moment
        self._shelf = Shelf()
        self.audiences: dict[int, frozenset[int]] = {}

    def survivors(self, number: int) -> list[PreparedFrame]:
        """The frames to write, bucket by bucket so that memory holds the rows of one at a time."""
        with self._folder.guard:
            frames = self._folder.index.frames_of_segment(number)
        needed = frames.rows["seq_max"] > self._acked
        places = frames.places
        for cursor, cuts in zip(self._cursors, self._cuts, strict=True):
            live = cursor.live_frames(frames, cuts).places
            needed |= np.isin(places, live, assume_unique=True)
        frames = frames.where(needed)
        prepared: list[PreparedFrame] = []
        for bucket in buckets_of(frames.rows):
            here = frames.where(frames.rows["bucket"] == bucket)
            prepared += self._survivors_of_bucket(bucket, list(here))
            pa.default_memory_pool().release_unused()
        return prepared

    def consumed(self, entry: Entry) -> Consumed:
        """What forks have consumed of a frame, as far as that can be told without reading it."""
        state = self._folder.state
        return tuple(
            [
                tuple(cuts.touching(entry.place, entry.keys, entry.seqs))
                if state.sees(cursor.fork, entry.place, entry.audience)
                else None
                for cursor, cuts in zip(self._cursors, self._cuts, strict=True)
            ]
        )

    def _survivors_of_bucket(self, bucket: int, entries: list[Entry]) -> list[PreparedFrame]:
        # Frames that were consumed alike are looked at as one: there may be thousands of them.
        alike: dict[Consumed, list[Run]] = {}
        for position, entry in enumerate(entries):
            if position % _FRAMES_PER_TURN == 0:
                # Lets threads in that wait for the interpreter: this is the one that has time.
                time.sleep(0)
            run = self._folder.reader.read(entry)
            alike.setdefault(self.consumed(entry), []).append(run)
        parts: dict[int, list[tuple[Run, NDArray[np.bool_]]]] = {}
        for consumed in list(alike):
            run = joined(alike.pop(consumed))
            for audience, mask in self._by_audience(live_masks(run, consumed), run.seqs):
                parts.setdefault(audience, []).append((run, mask))
        prepared: list[PreparedFrame] = []
        for audience in list(parts):
            prepared += self._encode(bucket, audience, parts.pop(audience))
        return prepared

    def _by_audience(
        self, masks: list[NDArray[np.bool_]], seqs: Numbers
    ) -> list[tuple[int, NDArray[np.bool_]]]:
        """Rows grouped by who needs them: (audience, mask), without the rows that nobody does. What
        only consumers need has an audience of no fork.
        """
        everyone = np.logical_and.reduce(masks)
        found = [(EVERYONE, everyone)] if everyone.any() else []
        some = (np.logical_or.reduce(masks) | (seqs > self._acked)) & ~everyone
        while some.any():
            row = int(some.argmax())
            members = [bool(mask[row]) for mask in masks]
            same = some.copy()
            for mask, is_member in zip(masks, members, strict=True):
                same &= mask if is_member else ~mask
            forks = frozenset(
                cursor.fork.id
                for cursor, is_member in zip(self._cursors, members, strict=True)
                if is_member
            )
            found.append((self._audience(forks), same))
            some &= ~same
        return found

    def _audience(self, forks: frozenset[int]) -> int:
        known = {**self._folder.state.audiences, **self.audiences}
        for id, members in known.items():
            if members == forks:
                return id
        id = max([self._folder.state.next_audience - 1, *self.audiences]) + 1
        self.audiences[id] = forks
        return id

    def _encode(
        self, bucket: int, audience: int, rows: list[tuple[Run, NDArray[np.bool_]]]
    ) -> list[PreparedFrame]:
        body = joined([run if mask.all() else run.filtered(mask) for run, mask in rows]).carried
        keys, seqs = int64_values(body.column(0)), int64_values(body.column(1))
        mark = self._folder.settings.versions.newest_fingerprint
        row_bytes = body.nbytes // len(keys) + 1
        step = max(min(CARRY_ROWS_MAX, CARRY_BYTES // row_bytes), 1)
        prepared = []
        for start in range(0, len(keys), step):
            stop = min(start + step, len(keys))
            prepared.append(
                PreparedFrame(
                    bucket,
                    self._shelf.keep(encode_body(body.slice(start, stop - start))),
                    int(keys[start]),
                    int(keys[stop - 1]),
                    mark,
                    seqs=(int(seqs[start:stop].min()), int(seqs[start:stop].max())),
                    audience=audience,
                )
            )
        return prepared
