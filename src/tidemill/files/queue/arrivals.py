"""Items in the order of their arrival, whoever has consumed them: what consumers read.

Frames as they were pushed follow each other by their seqs. Carried frames hold what was left of
older ones, so that theirs overlap. Segments are taken by their least seq, and of their frames only
as many as it takes until the next one cannot hold an earlier row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from tidemill.batch import Batch, int64_array, int64_values, put_together
from tidemill.files.folder.view import View
from tidemill.files.format.frame_table import ENTRY, Entry, FrameList
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.frame_reader import DamagedFrame, FrameReader
from tidemill.files.readers.snapshot import last_frame


class Arrived:
    """Rows that follow each other by seq."""

    def __init__(self, batch: Batch, until: int) -> None:
        self.batch = batch
        self.until = until  # no other row up to this seq is there

    def after(self, seq: int) -> Arrived:
        """Those with a greater seq."""
        start = int(int64_values(self.batch.seqs).searchsorted(seq, "right"))
        return Arrived(self.batch.slice(start), max(self.until, seq))


def read_arrivals(
    view: View,
    after: int,
    rows_max: int,
    on_damage: Callable[[DamagedFrame], None],  # raises, or the frame is passed over
    *,
    bytes_max: int,
) -> Arrived:
    """The rows with seqs greater than `after`, at least `rows_max` of them if there are so many in
    about `bytes_max`, and one if there is any.
    """
    with view.guard:
        arrived = view.state.arrived
        segments = [view.segments[number] for number in view.index.segments()]
        found = [(_first_seq(one), one) for one in segments if _last_seq(one) > after]
        found.sort(key=lambda one: one[0])
        hold = view.holds.hold([segment for _, segment in found])
        last = last_frame(view)
        set_aside = np.array(list(view.state.quarantined), np.int64)
        empty = Batch.empty(view.payload_schema)
        reader = FrameReader(
            {one.number: one for one in segments},
            view.settings.versions,
            own_from=view.reader.own_from,
        )
    try:
        parts: list[pa.RecordBatch] = []
        rows, size, top, until = 0, 0, after, arrived
        for entry in _by_seq(found, after, arrived, last, set_aside):
            size += entry.length
            if size > bytes_max:
                rows_max = 1  # What was read has to do, unless none of it can be given yet.
            if rows >= rows_max and _below(parts, top, entry.seq_min) >= rows_max:
                until = entry.seq_min - 1
                break
            try:
                part = _rows_between(reader, entry, after, arrived)
            except DamagedFrame as damage:
                on_damage(damage)
                continue
            parts.append(part)
            rows += part.num_rows
            top = max(top, entry.seq_max)
    finally:
        hold.release()
    if not parts:
        return Arrived(empty, until)
    body = put_together(parts)
    seqs = int64_values(body.column(1))
    order = np.argsort(seqs, kind="stable")
    order = order[: int(seqs[order].searchsorted(until, "right"))]
    return Arrived(Batch(body.take(int64_array(order))), until)


def _first_seq(segment: Segment) -> int:
    """The least seq of a segment that has frames. Called under the guard."""
    rows = segment.entries if segment.directory is None else segment.directory
    return int(rows["seq_min"].min())


def _last_seq(segment: Segment) -> int:
    """The greatest seq of a segment that has frames. Called under the guard."""
    rows = segment.entries if segment.directory is None else segment.directory
    return int(rows["seq_max"].max())


def _by_seq(
    segments: list[tuple[int, Segment]],  # by their least seq
    after: int,
    arrived: int,
    last: tuple[int, int],  # active segment, offset of its last frame then
    set_aside: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> Iterator[Entry]:
    """The frames that hold rows behind `after`, by their least seq."""
    frames = FrameList(np.empty(0, ENTRY), np.empty(0, np.int64))
    for position, (_, segment) in enumerate(segments):
        more = FrameList.of([(segment.number, segment.entries)])
        if segment.number == last[0]:
            more = more.where(more.rows["offset"] <= last[1])
        more = more.where(
            (more.rows["seq_max"] > after)
            & (more.rows["seq_min"] <= arrived)
            & ~np.isin(more.places, set_aside)
        )
        rows = np.concatenate([frames.rows, more.rows])
        numbers = np.concatenate([frames.segments, more.segments])
        order = np.argsort(rows["seq_min"], kind="stable")
        frames = FrameList(rows[order], numbers[order])
        if position + 1 < len(segments):
            # What begins later may come behind a frame of the next segment.
            stop = int(frames.rows["seq_min"].searchsorted(segments[position + 1][0]))
        else:
            stop = len(frames)
        yield from frames.part(0, stop)
        frames = frames.part(stop, len(frames))


def _rows_between(reader: FrameReader, entry: Entry, after: int, arrived: int) -> pa.RecordBatch:
    """The rows of a frame from behind `after` to `arrived`, with their seqs and times."""
    run = reader.read(entry)
    body = run.batch(0, run.rows).carried()
    if entry.seq_min > after and entry.seq_max <= arrived:
        return body
    wanted = (run.seqs > after) & (run.seqs <= arrived)
    return body.take(int64_array(np.flatnonzero(wanted)))


def _below(parts: list[pa.RecordBatch], top: int, seq: int) -> int:
    """How many of the rows come before `seq`."""
    if top < seq:
        return sum(part.num_rows for part in parts)
    return sum(int((int64_values(part.column(1)) < seq).sum()) for part in parts)
