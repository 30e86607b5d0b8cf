"""The queues that are merged: owned, so that nobody pops meanwhile, and seen as of one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tidemill.errors import Bug, SchemaMismatch
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.format.settings import QUEUE
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.readers.follower import Follower
from tidemill.files.readers.kept_snapshot import Bounds, FramePart, KeptSnapshot, Plan
from tidemill.files.staging.folder_staging import settings_of
from tidemill.limits import INT64_MIN
from tidemill.spark.merging.ranges import KeyRange, Numbers, key_ranges

_KEPT_S = 3600.0  # how long a snapshot outlives the last round that read it


@dataclass(frozen=True, slots=True)
class SourcePart:
    """What a task reads of one queue; plain, for it travels."""

    name: str  # of the queue's folder
    kept: KeptSnapshot
    frames: FramePart

    def read(
        self, bounds: Bounds, on_damage: Callable[[DamagedFrame], None]
    ) -> Iterator[pa.RecordBatch]:
        """The items within bounds, frame by frame."""
        kept = replace(self.kept, bounds=self.kept.bounds.within(bounds))
        return kept.read(self.frames, on_damage)


class OwnedQueue:
    """One queue: its lock is ours until it is closed."""

    def __init__(self, path: Path) -> None:
        # Looked at first, because opening would make what is not there.
        settings_of(LocalFileSystem(), path, QUEUE)
        self.path = path
        self._queue = PriorityQueue(path)
        self._snapshot: tuple[Plan, KeptSnapshot] | None = None

    @property
    def columns(self) -> pa.Schema:
        """The payload's columns."""
        return self._queue.schema

    @property
    def arrived(self) -> int:
        """The greatest arrival number."""
        return self._queue._core.folder.state.arrived

    def look(self, last: int) -> None:
        """Keep a snapshot of all that is left of the arrivals up to `last`."""
        with PriorityQueue(self.path, read_only=True) as reader:
            view = reader._core.view
            if not isinstance(view, Follower):
                raise Bug("a queue that is read only is followed")
            plan = Plan(view, reader._cursor, Bounds(seqs=(INT64_MIN, last)))
            if plan.rows:
                self._snapshot = plan, plan.keep(_KEPT_S)

    def keep(self) -> None:
        """Put off the end of the snapshot."""
        if self._snapshot is not None:
            self._snapshot[1].keep()

    def frames(self) -> tuple[Numbers, Numbers, Numbers]:
        """(least key, greatest key, bytes) of the frames there are."""
        if self._snapshot is None:
            nothing = np.empty(0, np.int64)
            return nothing, nothing, nothing
        rows = self._snapshot[0].frames.rows
        return rows["key_min"], rows["key_max"], rows["length"].astype(np.int64)

    def part(self, keys: KeyRange) -> SourcePart | None:
        """What a task has to read for these keys; None if there are none."""
        if self._snapshot is None:
            return None
        plan, kept = self._snapshot
        rows = plan.frames.rows
        found = plan.frames.where((rows["key_min"] <= keys.high) & (rows["key_max"] >= keys.low))
        if not len(found):
            return None
        total = int(found.rows["rows"].sum())
        part = FramePart(found.rows.tobytes(), tuple(found.segments.tolist()), 0, total)
        return SourcePart(self.path.name, kept, part)

    def give_up(self, keys: KeyRange, last: int) -> None:
        """Remove the items of these keys that arrived up to `last`; twice does no harm."""
        self._queue._delete(keys.low, keys.high, last)

    def close(self) -> None:
        if self._snapshot is not None:
            self._snapshot[1].end()
        self._queue.close()


class OwnedQueues:
    """All of them, in the order given."""

    def __init__(self, paths: Sequence[Path]) -> None:
        with ExitStack() as stack:
            self._queues = [stack.enter_context(closing(OwnedQueue(path))) for path in paths]
            self._held = stack.pop_all()

    def close(self) -> None:
        self._held.close()

    @property
    def last_arrivals(self) -> tuple[tuple[str, int], ...]:
        """(folder, greatest arrival number) of each."""
        return tuple((str(queue.path), queue.arrived) for queue in self._queues)

    def look(self, lasts: Sequence[int]) -> None:
        """Keep a snapshot of each, up to an arrival."""
        for queue, last in zip(self._queues, lasts, strict=True):
            queue.look(last)

    def keep(self) -> None:
        """Put off the end of the snapshots."""
        for queue in self._queues:
            queue.keep()

    def ranges(self, after: int | None, range_bytes: int) -> list[tuple[KeyRange, int]]:
        """The keys that are left, divided: see `key_ranges`."""
        found = [queue.frames() for queue in self._queues]
        lows, highs, sizes = (np.concatenate(column) for column in zip(*found, strict=True))
        if after is not None:
            is_left = highs > after
            lows, highs, sizes = lows[is_left], highs[is_left], sizes[is_left]
        return key_ranges(lows, highs, sizes, after=after, range_bytes=range_bytes)

    def parts(self, keys: KeyRange) -> list[SourcePart]:
        """What a task has to read for these keys."""
        return [part for queue in self._queues if (part := queue.part(keys)) is not None]

    def give_up(self, keys: KeyRange, lasts: Sequence[int]) -> None:
        """Remove the items of these keys that arrived up to then."""
        for queue, last in zip(self._queues, lasts, strict=True):
            queue.give_up(keys, last)

    def columns(self) -> pa.Schema:
        """The columns of all queues together."""
        fields: dict[str, pa.Field] = {}
        for queue in self._queues:
            for field in queue.columns:
                known = fields.setdefault(field.name, field)
                if not known.type.equals(field.type):
                    raise SchemaMismatch(
                        f"column {field.name!r} of {queue.path} is {field.type}, and another "
                        f"queue has it as {known.type}: one log cannot hold both"
                    )
        return pa.schema(fields.values())
