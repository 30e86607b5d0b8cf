"""What an end had left at one moment, in order and a chunk at a time, while everybody works on.

It has merges of its own, bounded by `arrived`: items pushed later are no part of it. So two queues
that are poured into each other come to an end, however often the same items pass by.

Locks: choosing and consuming each hold the cursor's lock, and nothing in between does. The caller
has marked the end as being read, so nobody else takes from it meanwhile; but frames may be moved or
given up by upkeep, and then the merges are opened anew from what the fork's cuts leave.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemill.files.commit.operation import Consume
from tidemill.files.folder.count import count_covered
from tidemill.files.folder.folder import Folder
from tidemill.files.format.frame_table import Entry
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.run import Run
from tidemill.files.state.cut import Cut
from tidemill.limits import INT64_MIN, SHOVEL_ROWS_MAX, TINY_FRAME_BYTES


class Chunk(NamedTuple):
    """The next items; each body becomes a frame, or one for each bucket of the destination."""

    bodies: list[pa.RecordBatch]  # without seqs and times, because the destination gives its own
    rows: int
    bytes: int
    cut: Cut  # the take that consumes them
    generation: int  # of the cursor when they were chosen


class Remainder:
    """The items of one end up to the last one that had arrived."""

    def __init__(self, folder: Folder, cursor: Cursor, *, chunk_bytes: int) -> None:
        self._folder = folder
        self._cursor = cursor
        self._chunk_bytes = chunk_bytes
        with folder.guard:
            self._arrived = folder.state.arrived
        self._floor = INT64_MIN  # no bucket below has items of the remainder
        self._merge: Merge | None = None
        self._rows_max = 1  # of one batch, so that it stays below the chunk's bytes
        self._generation = -1

    def choose(self) -> Chunk | None:
        """The next chunk; None if nothing is left. Called under the cursor's lock.

        It is to be consumed before the next one is chosen; one that is not is lost from sight.
        """
        if self._cursor.generation != self._generation:
            self._forget()
        try:
            return self._choose()
        except BaseException:
            self._forget()
            raise

    def _choose(self) -> Chunk | None:
        pieces: list[pa.RecordBatch] = []
        sizes: list[int] = []
        chosen_bytes = 0
        last = (0, 0)
        while chosen_bytes < self._chunk_bytes and (merge := self._merge or self._open_next()):
            choice = merge.choose_piece(self._rows_max)
            if choice is None:
                self._floor += 1
                self._merge = None
                continue
            piece = choice.batch.uncarried()
            piece_bytes = piece.nbytes
            while piece_bytes > self._chunk_bytes and len(choice.batch) > 1:
                # These rows are larger than the average that the number was made from.
                fewer = len(choice.batch) * self._chunk_bytes // piece_bytes
                choice = merge.choose_piece(max(fewer, 1)) or choice
                piece = choice.batch.uncarried()
                piece_bytes = piece.nbytes
            if pieces and chosen_bytes + piece_bytes > self._chunk_bytes:
                break
            # No other merge knows of it, so it moves on now; what is not consumed is read again.
            merge.advance(choice)
            pieces.append(piece)
            sizes.append(piece_bytes)
            chosen_bytes += piece_bytes
            last = choice.last
        if not pieces:
            return None
        rows = sum([piece.num_rows for piece in pieces])
        cut = Cut(0, self._arrived, INT64_MIN, *last)
        return Chunk(_joined(pieces, sizes), rows, chosen_bytes, cut, self._generation)

    def consume(self, chunk: Chunk) -> None:
        """Take the chunk from the end. Called under the cursor's lock."""
        folder, cursor = self._folder, self._cursor
        rows = chunk.rows
        is_known = cursor.generation == chunk.generation
        if not is_known:
            # Frames were moved or given up since; count what is really left of it.
            rows = count_covered(folder, cursor, chunk.cut)
        folder.commit(Consume(cursor.fork.id, chunk.cut, rows, folder.syncs_takes))
        if is_known:
            # The cursor starts from the index again, but these merges know what was consumed.
            self._generation = cursor.generation

    def _forget(self) -> None:
        """Start from the index again: rows that were chosen and not consumed are nowhere else."""
        self._merge = None
        self._floor = INT64_MIN
        self._generation = self._cursor.generation

    def _open_next(self) -> Merge | None:
        """The merge of the lowest bucket that has items of the remainder."""
        folder, cursor = self._folder, self._cursor
        while True:
            with folder.guard:
                bucket = folder.index.next_bucket(self._floor)
            if bucket is None:
                return None
            ahead = folder.index.read_ahead(bucket, folder.guard)
            with folder.guard:
                frames = folder.index.frames(bucket, ahead)
                frames = cursor.live_frames(frames.where(frames.rows["seq_min"] <= self._arrived))
            self._floor = bucket
            if len(frames):
                row_bytes = float((frames.rows["length"] / frames.rows["rows"]).max())
                rows_max = int(self._chunk_bytes / row_bytes)
                self._rows_max = max(min(rows_max, SHOVEL_ROWS_MAX), 1)
                self._merge = Merge(frames, self._load)
                return self._merge
            self._floor += 1

    def _load(self, entries: list[Entry]) -> list[Run]:
        runs = []
        for entry in entries:
            run = self._cursor.read_live(entry)
            if entry.seq_max > self._arrived:
                # A frame that was carried since may hold older and newer items side by side.
                is_older = run.seqs <= self._arrived
                is_older[: run.position] = False
                run = run.filtered(is_older)
            runs.append(run)
        return runs


def _joined(pieces: list[pa.RecordBatch], sizes: list[int]) -> list[pa.RecordBatch]:
    """The pieces, tiny ones joined with their neighbours: a frame costs the same for one row as for
    a hundred.
    """
    joined: list[pa.RecordBatch] = []
    tiny: list[pa.RecordBatch] = []
    tiny_rows = 0
    for piece, size in zip(pieces, sizes, strict=True):
        if size < TINY_FRAME_BYTES and tiny_rows < SHOVEL_ROWS_MAX:
            tiny.append(piece)
            tiny_rows += piece.num_rows
            continue
        if tiny:
            joined.append(pa.concat_batches(tiny))
            tiny, tiny_rows = [], 0
        joined.append(piece)
    return [*joined, pa.concat_batches(tiny)] if tiny else joined
