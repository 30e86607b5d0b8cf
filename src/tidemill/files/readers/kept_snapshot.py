"""A snapshot of one end of a queue that other processes read, each a part of it, by frames.

    planner   follows the queue, notes the frames and the cuts of one moment, and lends its links
    readers   open the segments by those links, and decode the frames that they were given

Readers need no state, no index and no word from the owner: what they have to know travels with
their part. The links keep the bytes, whatever is popped, cleared, carried or removed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemill.batch import HEADER_BYTES, Batch, Layout, SchemaVersions, unpack_header
from tidemill.errors import Trimmed
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.disk.storage import storage_errors
from tidemill.files.format.frame_table import ENTRY, Entry, FrameList
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import DamagedFrame, FrameReader
from tidemill.files.merge.run import Run
from tidemill.files.readers.follower import Follower
from tidemill.files.readers.snapshot import Snapshot
from tidemill.files.sharing.pin import sweep_readers, write_loan
from tidemill.files.state.cut import Cut, Cuts
from tidemill.limits import INT64_MAX, INT64_MIN


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which items are wanted, each pair from the least to the greatest; pure."""

    seqs: tuple[int, int] = (INT64_MIN, INT64_MAX)
    keys: tuple[int, int] = (INT64_MIN, INT64_MAX)
    times_us: tuple[int, int] = (INT64_MIN, INT64_MAX)

    def within(self, other: Bounds) -> Bounds:
        """Only what both want.

        >>> Bounds(seqs=(1, 9)).within(Bounds(seqs=(5, 20))).seqs
        (5, 9)
        """
        return Bounds(
            _common(self.seqs, other.seqs),
            _common(self.keys, other.keys),
            _common(self.times_us, other.times_us),
        )

    @property
    def is_empty(self) -> bool:
        return any(low > high for low, high in (self.seqs, self.keys, self.times_us))


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


@dataclass(frozen=True, slots=True)
class FramePart:
    """Some frames of a kept snapshot; of the first and the last perhaps some rows only."""

    entries: bytes  # as in `frame_table`
    segments: tuple[int, ...]  # of each entry
    skipped: int  # rows of the first frame that another part has
    rows: int


@dataclass(frozen=True, slots=True)
class KeptSnapshot:
    """What every reader has to know, beside its part."""

    path: str
    folder: str  # of the links
    kept_s: float
    schemas: list[list[dict[str, object]]]  # versions of the payload, as plain data
    cuts: tuple[Cut, ...]
    origins: tuple[tuple[int, Origin], ...]  # of adopted segments
    bounds: Bounds

    def keep(self) -> None:
        """Put off the end of the loan: somebody reads."""
        try:
            write_loan(LocalFileSystem(), Path(self.folder), time.time() + self.kept_s)
        except OSError as error:
            raise self._gone() from error

    def end(self) -> None:
        """Let the links go: nobody will read any more."""
        fs = LocalFileSystem()
        with storage_errors("ending a snapshot of", Path(self.path)):
            try:
                write_loan(fs, Path(self.folder), 0)
            except FileNotFoundError:
                return  # Somebody has swept it already.
            sweep_readers(fs, Path(self.path))

    def read(
        self, part: FramePart, on_damage: Callable[[DamagedFrame], None]
    ) -> Iterator[pa.RecordBatch]:
        """The items of a part, frame by frame, with seq, key, time and the payload's columns."""
        rows = np.frombuffer(part.entries, ENTRY)
        frames = FrameList(rows, np.array(part.segments, np.int64))
        fs = LocalFileSystem()
        files = OpenFiles(fs, write=False)
        folder = Path(self.folder)
        segments: dict[int, Segment] = {}
        for number in sorted(set(part.segments)):
            file = files.existing(segment_path(folder, number))
            segments[number] = Segment(fs, folder, number, file, start=0, end=0)
        for number, origin in self.origins:
            if number in segments:
                segments[number].origin = origin
        versions = SchemaVersions.from_json(self.schemas)
        reader = FrameReader(segments, versions, own_from=2**63)
        cuts = Cuts(self.cuts)
        skipped, wanted = part.skipped, part.rows
        try:
            for entry in frames:
                start, stop = skipped, min(entry.rows, skipped + wanted)
                skipped, wanted = 0, wanted - (stop - start)
                try:
                    run = reader.read(entry)
                except DamagedFrame as damage:
                    self._check_kept(fs, segments[entry.segment])
                    on_damage(self._known_to_its_owner(damage))
                    continue
                touching = cuts.touching(entry.place, entry.keys, entry.seqs)
                batch = _wanted(run, entry, start, stop, touching, self.bounds)
                if batch.num_rows:
                    yield batch
        finally:
            files.close()

    def _known_to_its_owner(self, damage: DamagedFrame) -> DamagedFrame:
        """The damage in the file of the journal, which the link leads to."""
        name = (damage.path or Path(self.folder)).name
        found = DamagedFrame(
            damage.reason, path=Path(self.path) / "journal" / name, offset=damage.offset
        )
        found.entry = damage.entry
        return found

    def _check_kept(self, fs: FileSystem, segment: Segment) -> None:
        """Raise if the link went meanwhile: another segment may have the file by now."""
        try:
            fs.open(segment.path).close()
        except FileNotFoundError as error:
            raise self._gone() from error

    def _gone(self) -> Trimmed:
        return Trimmed(
            f"the snapshot of {self.path} was kept for {self.kept_s:.0f} s after it was last read, "
            "and is gone; read the queue anew, or set `snapshotSeconds` higher"
        )


class Plan:
    """A snapshot as it is divided: `layout` is over the rows of its frames, counted from 0."""

    def __init__(self, view: Follower, cursor: Cursor, bounds: Bounds) -> None:
        self._view = view
        self._bounds = bounds
        snapshot = Snapshot(view, cursor, *bounds.keys)
        self._cuts = tuple(cursor.fork.cuts.all())
        buckets = snapshot.buckets
        frames = snapshot.frames(buckets[0], buckets[-1]) if buckets else FrameList.of([])
        frames = frames.at(np.argsort(frames.rows["bucket"], kind="stable"))
        low, high = bounds.seqs
        frames = frames.where((frames.rows["seq_max"] >= low) & (frames.rows["seq_min"] <= high))
        if bounds.times_us != Bounds().times_us:
            frames = frames.where(np.array([self._in_time(one) for one in frames], np.bool_))
        self.frames = frames
        rows = frames.rows["rows"].astype(np.int64)
        self._firsts = np.cumsum(rows) - rows
        self.layout = Layout(self._firsts, rows, frames.rows["length"].astype(np.int64))

    @property
    def rows(self) -> int:
        return int(self.layout.rows.sum())

    def keep(self, seconds: float) -> KeptSnapshot:
        """End the follower, and keep what it was following for those who read parts."""
        view = self._view
        origins = tuple(
            (number, segment.origin)
            for number, segment in view.segments.items()
            if segment.origin is not None
        )
        schemas = view.settings.versions.to_json()
        folder = view.lend(seconds)
        return KeptSnapshot(
            str(view.path), str(folder), seconds, schemas, self._cuts, origins, self._bounds
        )

    def part(self, start: int, end: int) -> FramePart:
        """The rows from `start` up to `end`, counted through all frames."""
        low = int(self._firsts.searchsorted(start, "right")) - 1
        high = int(self._firsts.searchsorted(end, "left"))
        frames = self.frames.part(low, high)
        return FramePart(
            frames.rows.tobytes(),
            tuple(frames.segments.tolist()),
            start - int(self._firsts[low]),
            end - start,
        )

    def _in_time(self, entry: Entry) -> bool:
        """Whether a frame may hold items of the wanted times: its header says when it was written,
        unless it was carried, for then its rows say so themselves.
        """
        segment = self._view.segments[entry.segment]
        with storage_errors("reading", segment.path):
            data = segment.file.pread(HEADER_BYTES, entry.offset + ENVELOPE_BYTES)
        header = unpack_header(data)
        if header.carried:
            return True
        if segment.origin is not None:
            header = segment.origin.header(header)
        low, high = self._bounds.times_us
        return low <= header.time_us <= high


def _wanted(
    run: Run, entry: Entry, start: int, stop: int, cuts: list[Cut], bounds: Bounds
) -> pa.RecordBatch:
    """The rows [start, stop) of a frame, less what was consumed and what is out of bounds."""
    # Keys are sorted, so that their bounds are two positions; seqs of a frame as pushed are, too.
    low, high = bounds.keys
    start = max(start, int(run.keys.searchsorted(low, "left")))
    stop = min(stop, int(run.keys.searchsorted(high, "right")))
    if start >= stop:
        return run.batch(0, 0).to_arrow()
    batch: Batch = run.batch(start, stop)
    has_others = entry.seq_min < bounds.seqs[0] or entry.seq_max > bounds.seqs[1]
    if not cuts and not has_others and bounds.times_us == Bounds().times_us:
        return batch.to_arrow()
    keys, seqs = run.keys[start:stop], run.seqs[start:stop]
    wanted = np.ones(stop - start, np.bool_)
    for cut in cuts:
        wanted &= ~cut.mask(keys, seqs)
    if has_others:
        wanted &= (seqs >= bounds.seqs[0]) & (seqs <= bounds.seqs[1])
    if bounds.times_us != Bounds().times_us:
        times = run.times_of(start, stop)
        wanted &= (times >= bounds.times_us[0]) & (times <= bounds.times_us[1])
    if wanted.all():
        return batch.to_arrow()
    return batch.to_arrow().filter(pa.array(wanted))
