"""One range of keys: its items are read from all queues, sorted, and staged for the log.

Items with equal keys keep the order of their queues, and within a queue that of their arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tidemill.batch import int64_array, int64_values, stable_order
from tidemill.errors import Corrupt
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.readers.kept_snapshot import Bounds
from tidemill.files.staging.transaction import StagedPart
from tidemill.limits import INT64_MAX, INT64_MIN, MERGE_MEMORY_BYTES, STAGED_CHUNK_BYTES
from tidemill.spark.merging.queues import SourcePart
from tidemill.spark.merging.ranges import KeyRange, Numbers
from tidemill.spark.sink.parts import stage
from tidemill.spark.sink.target import Target

_ALL = KeyRange(INT64_MIN, INT64_MAX)


@dataclass(frozen=True, slots=True)
class Columns:
    """The log's columns, and which of them do not come from the payload."""

    schema: pa.Schema
    key: str | None  # takes the item's key; None: it is left out
    origin: str | None  # takes the name of the queue's folder

    def of(self, batch: pa.RecordBatch, origin: str) -> pa.RecordBatch:
        """A batch as the source gives it, as rows of the log."""
        columns = []
        for field in self.schema:
            if field.name == self.key:
                columns.append(batch.column("key"))
            elif field.name == self.origin:
                columns.append(pa.repeat(pa.scalar(origin, field.type), batch.num_rows))
            elif (index := batch.schema.get_field_index(field.name)) >= 0:
                columns.append(batch.column(index))
            else:
                # Another queue has this column.
                columns.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


@dataclass(frozen=True, slots=True)
class MergeTask:
    """What one task of Spark does; plain, for it travels there."""

    keys: KeyRange
    parts: list[SourcePart]
    columns: Columns
    target: Target
    staging: str

    def run(self, partition: int) -> StagedPart:
        """Stage the range as this partition of the transaction."""
        return stage(self.target, self.staging, self.rows(), partition)

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The rows of the log, in order."""
        return self._in_order(self.parts, self.keys, _ALL)

    def _in_order(
        self, parts: list[SourcePart], keys: KeyRange, seqs: KeyRange
    ) -> Iterator[pa.RecordBatch]:
        found = self._read(parts, keys, seqs)
        if isinstance(found, _Found):
            yield from found.sorted()
        elif keys.low < keys.high:
            for half in keys.halves(min(found.key, keys.high - 1)):
                yield from self._in_order(parts, half, seqs)
        elif len(parts) > 1:
            for part in parts:
                yield from self._in_order([part], keys, seqs)
        else:
            for half in seqs.halves(min(found.seq, seqs.high - 1)):
                yield from self._in_order(parts, keys, half)

    def _read(self, parts: list[SourcePart], keys: KeyRange, seqs: KeyRange) -> _Found | _TooMuch:
        """All rows of these keys and arrivals, unless they are more than memory has room for."""
        found = _Found()
        for part in parts:
            for batch in part.read(Bounds(seqs, keys), _on_damage):
                found.add(batch, self.columns.of(batch, part.name))
                if found.total_bytes > MERGE_MEMORY_BYTES and found.rows > 1:
                    return found.middle()
            found.end_of_queue()
        return found


class _TooMuch(NamedTuple):
    """Where to divide."""

    key: int
    seq: int


class _Found:
    """Rows in memory: of one queue after the other."""

    def __init__(self) -> None:
        self.total_bytes = self.rows = 0
        self._keys: list[Numbers] = []
        self._seqs: list[Numbers] = []
        self._batches: list[pa.RecordBatch] = []
        self._order: list[Numbers] = []  # the rows of each queue, by arrival
        self._first = 0  # of the frames of the queue that is read

    def add(self, items: pa.RecordBatch, rows: pa.RecordBatch) -> None:
        """Take a frame: the items as they were, and what the log gets of them."""
        self._keys.append(int64_values(items.column("key")))
        self._seqs.append(int64_values(items.column("seq")))
        self._batches.append(rows)
        self.rows += rows.num_rows
        self.total_bytes += rows.nbytes

    def end_of_queue(self) -> None:
        """The next frame is of another queue."""
        frames, self._first = self._seqs[self._first :], len(self._seqs)
        if frames:
            seqs = np.concatenate(frames)
            order = stable_order(seqs) if (seqs[1:] < seqs[:-1]).any() else np.arange(len(seqs))
            self._order.append(order + (self.rows - len(seqs)))

    def sorted(self) -> Iterator[pa.RecordBatch]:
        """The rows by key, equal ones by queue and arrival, in pieces."""
        if not self.rows:
            return
        arrived = np.concatenate(self._order)
        order = arrived[stable_order(np.concatenate(self._keys)[arrived])]
        rows = pa.concat_batches(self._batches)
        self._batches.clear()
        # In pieces that a processor's caches hold.
        for piece in np.array_split(order, -(-self.total_bytes // STAGED_CHUNK_BYTES)):
            if len(piece):
                yield rows.take(int64_array(piece))

    def middle(self) -> _TooMuch:
        """The middle of what was found so far."""
        half = self.rows // 2
        return _TooMuch(
            int(np.partition(np.concatenate(self._keys), half)[half]),
            int(np.partition(np.concatenate(self._seqs), half)[half]),
        )


def _on_damage(damage: DamagedFrame) -> None:
    raise Corrupt(damage.reason, path=damage.path, offset=damage.offset) from damage
