"""The rows of a log, in a folder or on a server."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pyarrow as pa

from tidemill.batch import Layout, LogBatch
from tidemill.errors import Corrupt, MissingRows, Trimmed
from tidemill.limits import TASK_READ_BYTES_MAX
from tidemill.log.contract import ConsumerClaim, Ends, LogStore
from tidemill.log.opening import open_store
from tidemill.spark.address import Address
from tidemill.spark.source.chunks import CHUNK_ROWS
from tidemill.spark.source.rows import NumberedRows

logger = logging.getLogger(__name__)

_READ_ROWS_MAX = 256 * 1024


class LogPosition:
    """A consumer of a log, as claimed."""

    def __init__(self, store: LogStore, claim: ConsumerClaim) -> None:
        self._store = store
        self._claim = claim

    def done(self, next_seq: int) -> None:
        self._store.move_pointer(self._claim, next_seq - 1)

    def close(self) -> None:
        pass  # A claim needs no end: the next one fences it.


class LogRows(NumberedRows):
    """A log that is there already, opened to be read."""

    def __init__(self, address: Address) -> None:
        is_folder = os.path.isabs(address.url)
        options = {"read_only": True} if is_folder else {"create": False}
        self._store = open_store(address.url, schema=None, **options)
        self.place = self._store.place

    @property
    def columns(self) -> pa.Schema:
        return LogBatch.empty(self._store.versions.newest, 1).to_arrow().schema

    def ends(self) -> Ends:
        return self._store.ends()

    def seq_at(self, time_us: int) -> int:
        return self._store.seq_at(time_us)

    def layout(self, start: int, end: int) -> Layout:
        return self._store.layout(start, end)

    def read(self, start: int, end: int, *, fail_on_loss: bool) -> Iterator[pa.RecordBatch]:
        while start < end:
            try:
                rows_max = min(end - start, _READ_ROWS_MAX)
                found = self._store.read(start, rows_max=rows_max, bytes_max=TASK_READ_BYTES_MAX)
                if not found:
                    raise MissingRows(
                        f"rows {start} to {end - 1} of {self.place} are gone: it ends at "
                        f"{self._store.ends().next - 1}",
                        first=start,
                        last=end - 1,
                    )
            except (Trimmed, Corrupt) as loss:
                if fail_on_loss:
                    raise
                behind = min(self._behind(loss, start), end)
                logger.warning("rows %d to %d are left out: %s", start, behind - 1, loss)
                start = behind
                continue
            # Joined before they have numbers and times, which are then written once, not copied.
            for batches in _groups(found):
                yield LogBatch.concat(batches).to_arrow()
            start = found[-1].next_seq

    def consumers(self) -> dict[str, int]:
        return {name: state.pointer for name, state in self._store.consumers().items()}

    def claim(self, consumer: str, start: int) -> LogPosition:
        return LogPosition(self._store, self._store.claim_consumer(consumer, start=start))

    def close(self) -> None:
        self._store.close()

    def _behind(self, loss: Trimmed | Corrupt, start: int) -> int:
        """The first row behind what cannot be read."""
        if isinstance(loss, Trimmed):
            return max(loss.first, start + 1)
        if isinstance(loss, MissingRows):
            return max(loss.last, start) + 1
        frame = self._store.layout(start, start + 1)
        return int(frame.firsts[0] + frame.rows[0]) if len(frame.firsts) else start + 1


def _groups(batches: list[LogBatch]) -> Iterator[list[LogBatch]]:
    """The same batches, as many together as Spark takes well at once."""
    group: list[LogBatch] = []
    rows = 0
    for batch in batches:
        group.append(batch)
        rows += len(batch)
        if rows >= CHUNK_ROWS:
            yield group
            group, rows = [], 0
    if group:
        yield group
