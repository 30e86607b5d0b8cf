"""The items of a priority queue in the order of their arrival, whoever pops them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator

import pyarrow as pa

from tidemill.batch import Batch, Layout, int64_values
from tidemill.errors import Corrupt, Locked, MissingRows
from tidemill.files.folder.folder_options import CorruptionMode
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.queue.arrivals import read_arrivals
from tidemill.files.queue.consumer import Consumer
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.readers.layout import layout_of
from tidemill.files.sharing.pointers import read_pointers
from tidemill.limits import TASK_READ_BYTES_MAX
from tidemill.log.contract import Ends
from tidemill.spark.address import Address
from tidemill.spark.source.rows import NumberedRows

logger = logging.getLogger(__name__)

_READ_ROWS_MAX = 128 * 1024
_LOCKED_S_MAX = 20.0  # how long the process of a query that was stopped may take to end
_PAUSE_S = 0.1


class QueuePosition:
    """A consumer of a queue, which this process has locked."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    def done(self, next_seq: int) -> None:
        self._consumer.ack(next_seq - 1)

    def close(self) -> None:
        self._consumer.close()


class ArrivedRows(NumberedRows):
    """A queue that another process may own."""

    def __init__(self, address: Address, *, fail_on_loss: bool) -> None:
        on_corruption: CorruptionMode = "abort" if fail_on_loss else "continue"
        self._queue = PriorityQueue(address.url, read_only=True, on_corruption=on_corruption)
        self._view = self._queue._core.view
        self.place = address.url

    @property
    def columns(self) -> pa.Schema:
        return Batch.empty(self._queue.schema).to_arrow().schema

    def ends(self) -> Ends:
        """The first item that is still on disk, as far as frames tell, and the next to come."""
        view = self._view
        view.check_open()
        with view.guard:
            next_seq = view.state.arrived + 1
            firsts = [view.index.bounds(number)[2] for number in view.index.segments()]
        return Ends(min([next_seq, *firsts]), next_seq)

    def seq_at(self, time_us: int) -> int:
        """By reading on from the front: an item that was carried knows its time, its frame not."""
        first, next_seq = self.ends()
        for batch in self.read(first, next_seq, fail_on_loss=False):
            times = int64_values(batch.column("time"))
            at = int(times.searchsorted(time_us, "left"))
            if at < batch.num_rows:
                return int(batch.column("seq")[at].as_py())
        return next_seq

    def layout(self, start: int, end: int) -> Layout:
        return layout_of(self._view, start, end)

    def read(self, start: int, end: int, *, fail_on_loss: bool) -> Iterator[pa.RecordBatch]:
        def on_damage(damage: DamagedFrame) -> None:
            if fail_on_loss:
                raise Corrupt(
                    damage.reason,
                    path=self._queue.path / "journal" / (damage.path or self._queue.path).name,
                    offset=damage.offset,
                ) from damage
            logger.warning("%d items are left out: %s", damage.entry.rows, damage)

        after = start - 1
        while after < end - 1:
            rows_max = min(end - 1 - after, _READ_ROWS_MAX)
            arrived = read_arrivals(
                self._view, after, rows_max, on_damage, bytes_max=TASK_READ_BYTES_MAX
            )
            rows = arrived.batch.to_arrow()
            stop = int(int64_values(arrived.batch.seqs).searchsorted(end, "left"))
            if stop:
                yield rows.slice(0, stop)
            if arrived.until <= after:
                break
            after = arrived.until
        if after < end - 1 and fail_on_loss:
            raise MissingRows(
                f"items {after + 1} to {end - 1} of {self.place} are gone: they were not synced, "
                "and its owner lost them",
                first=after + 1,
                last=end - 1,
            )

    def consumers(self) -> dict[str, int]:
        return read_pointers(self._view.fs, self._view.path)

    def claim(self, consumer: str, start: int) -> QueuePosition:
        deadline_s = time.monotonic() + _LOCKED_S_MAX
        while True:
            try:
                return QueuePosition(self._queue.consumer(consumer, start=max(start, 1)))
            except Locked:
                # The process of a query that was just stopped is about to end; it does not tell.
                if time.monotonic() > deadline_s:
                    raise
                time.sleep(_PAUSE_S)

    def close(self) -> None:
        self._queue.close()
