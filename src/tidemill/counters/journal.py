"""What a replica saved, as rows of a log in its folder: one append for each turn.

Nothing is ever read back but to take all of it up again, and merging does not mind what is old or
double. So a snapshot is one more message, and what is in front of it can go, now or after a crash.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Hashable, Iterator
from itertools import pairwise

import pyarrow as pa

from tidemill.batch import fingerprint
from tidemill.clock import Clock
from tidemill.counters.message import Message
from tidemill.counters.wire import SCHEMA, decode, encode, starts
from tidemill.errors import BadMessage, Corrupt, Fenced, Locked
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.folder.folder_path import folder_path
from tidemill.limits import COUNTER_JOURNAL_ROWS_MIN, SEGMENT_BYTES
from tidemill.log.frames import encode_rows
from tidemill.log.on_files.place import LogPlace
from tidemill.log.on_files.store import FileLog

_READ_ROWS = 2**20
_READ_BYTES = 2**26
# Rows of a log may be null, as far as its schema goes; ours never are.
_STORED = pa.schema([field.with_nullable(True) for field in SCHEMA])
_FINGERPRINT = fingerprint(_STORED)


# A log lets the newest publisher of a process win; a replica must not be overtaken by itself.
_open: weakref.WeakValueDictionary[Hashable, Journal] = weakref.WeakValueDictionary()
_open_mutex = threading.Lock()


class Journal:
    """A folder that one replica saves its turns to. Raises `Locked` if another has it open, in this
    process or in another.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Clock,
        file_system: FileSystem | None = None,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        fs = LocalFileSystem() if file_system is None else file_system
        self._key = LogPlace.key(fs, folder_path(path, "counters"))
        with _open_mutex:
            if self._key in _open:
                pid = os.getpid()
                raise Locked(f"{path} is open in this process already; close it first", pid=pid)
            _open[self._key] = self
        try:
            self._log = FileLog(
                path, schema=_STORED, clock=clock, file_system=fs, segment_bytes=segment_bytes
            )
            try:
                self._writer = self._log.claim()
            except BaseException:
                self._log.close()
                raise
        except BaseException:
            self._leave()
            raise
        self._is_torn = False  # an append was broken off
        self.rows = 0  # since the last snapshot
        self._snapshot_rows = 0

    def read(self) -> Iterator[Message]:
        """All that was saved, in order."""
        at = self._log.ends().first
        left = pa.Table.from_batches([], _STORED)
        while batches := self._log.read(at, rows_max=_READ_ROWS, bytes_max=_READ_BYTES):
            at = batches[-1].next_seq
            table = pa.concat_tables([left, *(pa.table(one.payload) for one in batches)])
            begins = starts(table)
            # The last one may go on behind what was read.
            for begin, end in pairwise(begins):
                yield self._message(table.slice(begin, end - begin))
            left = table.slice(begins[-1]) if begins else table
        if left.num_rows:
            yield self._message(left)

    def append(self, message: Message) -> None:
        """Save a turn; it is on disk on return."""
        self._append(message)
        self.rows += message.rows + len(message.replicas)

    @property
    def is_long(self) -> bool:
        """Whether a snapshot would be much shorter than what was saved since the last."""
        return self.rows > max(COUNTER_JOURNAL_ROWS_MIN, 2 * self._snapshot_rows)

    def rewrite(self, snapshot: Message) -> None:
        """Save everything, and give up what was saved before."""
        # First: one that fails is tried again after as many rows, not with every save.
        self.rows = 0
        self._snapshot_rows = snapshot.rows + len(snapshot.replicas)
        first = self._append(snapshot)
        self._log.trim(first, force=True)

    def close(self) -> None:
        try:
            self._log.close()
        finally:
            self._leave()

    def _leave(self) -> None:
        """Let this process open the folder again."""
        with _open_mutex:
            if _open.get(self._key) is self:
                del _open[self._key]

    def _append(self, message: Message) -> int:
        batch = encode(message)
        stored = pa.record_batch(batch.columns, schema=_STORED)
        frames = encode_rows(stored, _FINGERPRINT, bytes_max=self._writer.frame_bytes_max)
        if self._is_torn:
            # Whether its rows were written, only the folder knows: another writer begins behind.
            self._writer = self._log.claim()
        self._is_torn = True
        try:
            reservation = self._writer.reserve(batch.num_rows)
            self._writer.append(0, reservation, frames)
        except Fenced as error:
            self._is_torn = False
            raise Fenced(
                f"somebody else publishes to {self._log.place}, which holds counters, so that what "
                "they counted since the last save is lost; open them again"
            ) from error
        except Exception:
            self._is_torn = False  # An append that fails gives its numbers back.
            raise
        self._is_torn = False
        return reservation.first

    def _message(self, table: pa.Table) -> Message:
        columns = [column.combine_chunks() for column in table.columns]
        columns = [c if isinstance(c, pa.Array) else pa.concat_arrays(c.chunks) for c in columns]
        self.rows += table.num_rows
        try:
            return decode(pa.record_batch(columns, schema=SCHEMA))
        except (BadMessage, pa.ArrowInvalid, ValueError) as error:
            raise Corrupt(f"what is saved in {self._log.place} is no turn: {error}") from error


def _after_fork() -> None:
    """What the parent has open is its own, and a thread may have held the mutex."""
    global _open_mutex  # noqa: PLW0603 (a process has one)
    _open_mutex = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
