"""What forks and consumers still need of some segments, as frames to be written again.

Frames that were consumed alike are merged with each other, bucket by bucket, in little memory; what
is left of them is cut into frames of some thousand rows. Each row goes to the audience that has yet
to consume it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.batch import Batch, encode_body, int64_array, int64_values
from tidemill.files.disk.memory import row_memory
from tidemill.files.folder.folder import Folder
from tidemill.files.format.frame_table import Entry, FrameList, buckets_of
from tidemill.files.journal.draft import PreparedFrame
from tidemill.files.merge.cursor import Cursor, frames_left
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.run import Numbers, Run, merged
from tidemill.files.state.cut import Cut, Cuts
from tidemill.files.state.state import EVERYONE, sees
from tidemill.files.upkeep.shelf import Shelf
from tidemill.limits import (
    CARRY_BYTES,
    CARRY_MERGE_BYTES_MAX,
    CARRY_ROWS_MAX,
    INT64_MAX,
    TINY_FRAME_BYTES,
)

# For each fork the cuts that touch a frame, or None if the frame is not meant for it.
Consumed: TypeAlias = tuple[tuple[Cut, ...] | None, ...]
Mask: TypeAlias = NDArray[np.bool_]

_FRAMES_PER_TURN = 16
_ONES_PER_TURN = 64
_FRAMES_AT_ONCE = 2048  # tiny ones
_FRAMES_PER_PIECE = 4  # whose rows are sorted and encoded in one go


class Survivors:
    """Collects them, as things stood at one moment."""

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
        self._cuts = cuts  # of each, as they were at that moment
        self.audiences: dict[int, frozenset[int]] = {}  # those that are new

    def of(self, segments: list[int], shelf: Shelf) -> list[PreparedFrame]:
        """The frames to write, bucket by bucket so that memory holds the rows of one at a time;
        their bodies lie on the shelf.
        """
        index, guard = self._folder.index, self._folder.guard
        ahead = index.read_segments_ahead(segments, guard)
        with guard:
            frames = index.frames_of_segments(segments, ahead)
        audiences = self._folder.state.audiences
        needed = frames.rows["seq_max"] > self._acked
        places = frames.places
        for cursor, cuts in zip(self._cursors, self._cuts, strict=True):
            live = frames_left(frames, cursor.fork, cuts, audiences).places
            needed |= np.isin(places, live, assume_unique=True)
        frames = frames.where(needed)
        prepared: list[PreparedFrame] = []
        for bucket in buckets_of(frames.rows):
            here = frames.where(frames.rows["bucket"] == bucket)
            for consumed, some in self._alike(here):
                prepared += [
                    frame._replace(body=shelf.keep(frame.body))
                    for frame in self._rewritten(bucket, some, consumed)
                ]
            row_memory().release_unused()
        return prepared

    def _alike(self, frames: FrameList) -> list[tuple[Consumed, FrameList]]:
        """The frames by what forks have consumed of them."""
        touched = frames.rows["audience"] != EVERYONE
        for cuts in self._cuts:
            touched |= cuts.touched(frames)
        groups: list[tuple[Consumed, FrameList]] = []
        if not touched.all():
            # Most frames have not been touched at all, and tiny ones are too many to look at each.
            groups.append((((),) * len(self._cuts), frames.where(~touched)))
        if touched.any():
            frames = frames.where(touched)
            alike: dict[Consumed, list[int]] = {}
            for index, entry in enumerate(frames):
                alike.setdefault(self._consumed(entry), []).append(index)
            groups += [(consumed, frames.at(indexes)) for consumed, indexes in alike.items()]
        return groups

    def masks(self, entry: Entry) -> list[Mask]:
        """For each fork, which rows of a frame it has yet to consume."""
        run = self._folder.reader.read(entry)
        return _live(run.keys, run.seqs, self._consumed(entry))

    def _consumed(self, entry: Entry) -> Consumed:
        """What forks have consumed of a frame, as far as that can be told without reading it."""
        state = self._folder.state
        return tuple(
            [
                tuple(cuts.touching(entry.place, entry.keys, entry.seqs))
                if sees(cursor.fork, state.audiences, entry.place, entry.audience)
                else None
                for cursor, cuts in zip(self._cursors, self._cuts, strict=True)
            ]
        )

    def _rewritten(
        self, bucket: int, frames: FrameList, consumed: Consumed
    ) -> Iterator[PreparedFrame]:
        """What is left of frames that were consumed alike, in order."""
        gathered: dict[int, list[pa.RecordBatch]] = {}  # by audience
        for piece in self._sorted(frames):
            for audience, rows in self._by_audience(piece, consumed):
                waiting = gathered.setdefault(audience, [])
                if sum(one.num_rows for one in waiting) + rows.num_rows > _piece_rows():
                    yield from self._encode(bucket, audience, waiting)
                    waiting.clear()
                waiting.append(rows)
        for audience, waiting in gathered.items():
            yield from self._encode(bucket, audience, waiting)

    def _sorted(self, frames: FrameList) -> Iterator[Batch]:
        """All rows of the frames in order, some thousand at a time."""
        total_bytes = int(frames.rows["length"].sum())
        if total_bytes <= min(CARRY_MERGE_BYTES_MAX, len(frames) * TINY_FRAME_BYTES):
            # Tiny ones are sorted all at once: to look at each as a merge does would cost more.
            whole = self._joined(frames)
            for start in range(0, whole.rows, _piece_rows()):
                yield whole.batch(start, min(start + _piece_rows(), whole.rows))
            return
        merge = Merge(frames, self._load, bytes_max=CARRY_MERGE_BYTES_MAX)
        while (choice := merge.choose_piece(_piece_rows())) is not None:
            merge.advance(choice)
            yield choice.batch

    def _joined(self, frames: FrameList) -> Run:
        """All rows of tiny frames as one run. A frame of its own takes some KB in memory, whatever
        it holds, so that only so many are at a time.
        """
        joined: list[Run] = []
        for start in range(0, len(frames), _FRAMES_AT_ONCE):
            entries = list(frames.part(start, start + _FRAMES_AT_ONCE))
            joined.append(self._load_ones(entries) or _one(self._load(entries)))
        return _one(joined)

    def _load_ones(self, entries: list[Entry]) -> Run | None:
        """The rows of frames with one item each, sorted; None if each has to be read by itself."""
        runs: list[Run] = []
        for start in range(0, len(entries), _ONES_PER_TURN):
            time.sleep(0)
            run = self._folder.reader.read_ones(entries[start : start + _ONES_PER_TURN])
            if run is None:
                return None
            runs.append(run)
        # Not one of them is sorted by itself.
        return merged([(run, 0, run.rows) for run in runs])[0]

    def _load(self, entries: list[Entry]) -> list[Run]:
        runs: list[Run] = []
        for start in range(0, len(entries), _FRAMES_PER_TURN):
            # Lets threads in that wait for the interpreter: this is the one that has time.
            time.sleep(0)
            runs += self._folder.reader.read_all(entries[start : start + _FRAMES_PER_TURN])
        return runs

    def _by_audience(self, batch: Batch, consumed: Consumed) -> list[tuple[int, pa.RecordBatch]]:
        """Rows by who needs them, without the rows that nobody does. What only consumers need has
        an audience of no fork.
        """
        rows = batch.carried()
        seqs = int64_values(rows.column(1))
        masks = _live(int64_values(rows.column(0)), seqs, consumed)
        everyone = np.logical_and.reduce(masks)
        if everyone.all():
            return [(EVERYONE, rows)]
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
        return [(id, rows.take(int64_array(np.flatnonzero(mask)))) for id, mask in found]

    def _audience(self, forks: frozenset[int]) -> int:
        known = {**self._folder.state.audiences, **self.audiences}
        for id, members in known.items():
            if members == forks:
                return id
        id = max([self._folder.state.next_audience - 1, *self.audiences]) + 1
        self.audiences[id] = forks
        return id

    def _encode(
        self, bucket: int, audience: int, rows: list[pa.RecordBatch]
    ) -> Iterator[PreparedFrame]:
        body = pa.concat_batches(rows)
        keys, seqs = int64_values(body.column(0)), int64_values(body.column(1))
        mark = self._folder.settings.versions.newest_fingerprint
        row_bytes = body.nbytes // len(keys) + 1
        step = max(min(CARRY_ROWS_MAX, CARRY_BYTES // row_bytes), 1)
        for start in range(0, len(keys), step):
            stop = min(start + step, len(keys))
            yield PreparedFrame(
                bucket,
                encode_body(body.slice(start, stop - start)),
                int(keys[start]),
                int(keys[stop - 1]),
                mark,
                seqs=(int(seqs[start:stop].min()), int(seqs[start:stop].max())),
                audience=audience,
            )


def _piece_rows() -> int:
    return _FRAMES_PER_PIECE * CARRY_ROWS_MAX


def _one(runs: list[Run]) -> Run:
    return merged([(run, 0, run.rows) for run in runs])[0] if len(runs) > 1 else runs[0]


def _live(keys: Numbers, seqs: Numbers, consumed: Consumed) -> list[Mask]:
    """For each fork, which rows it has yet to consume."""
    masks = []
    for cuts in consumed:
        mask = np.full(len(keys), cuts is not None)
        for cut in cuts or ():
            mask &= ~cut.mask(keys, seqs)
        masks.append(mask)
    return masks
