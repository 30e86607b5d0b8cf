"""The priority queue in a folder: the public face."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from tidemill.clock import Clock, SystemClock, wait_seconds
from tidemill.closing import Closing
from tidemill.errors import InvalidInput
from tidemill.files.disk.filesystem import FileSystem, LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.disk.whole_path import whole_path
from tidemill.files.folder.folder import Folder
from tidemill.files.folder.folder_options import CorruptionMode, FolderOptions, SyncMode
from tidemill.files.folder.folder_path import folder_path
from tidemill.files.queue.consumer import Consumer, Start
from tidemill.files.queue.consuming_end import ConsumingEnd
from tidemill.files.queue.pushes import bytes_needed, push_operation, push_receipt
from tidemill.files.queue.receipt import Receipt
from tidemill.files.readers.follower import Follower
from tidemill.files.sharing.pointers import read_pointers
from tidemill.files.state.bucket import BucketFunction
from tidemill.files.state.state import ROOT
from tidemill.files.upkeep.maintenance import Maintenance
from tidemill.files.upkeep.queue_core import QueueCore, ReaderCore
from tidemill.files.upkeep.room import Room, WhenFull
from tidemill.limits import (
    BUCKETS_OPEN_MAX,
    BYTES_MAX_LEAST,
    SEGMENT_BYTES,
    SEGMENT_BYTES_MAX,
    SEGMENT_BYTES_MIN,
)
from tidemill.shown import shown


@dataclass(frozen=True, slots=True)
class Stats:
    """A look at a queue.

    >>> import tempfile, tidemill as tm
    >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...     receipt = queue.push([b"a", b"b"])
    ...     queue.stats().items
    2
    """

    items: int  # that the queue itself has yet to pop
    forks: dict[str, int]  # name → items that the fork has yet to pop
    next_seq: int  # the arrival number of the next item
    buckets: int  # that hold frames
    segments: int
    disk_bytes: int  # of the journal
    cuts: int  # regions of consumed items that have to be remembered
    quarantined: int  # damaged records that were set aside
    dropped: int  # items given up to stay below bytes_max


class PriorityQueue(ConsumingEnd, Closing):
    """A durable priority queue in a folder.

    Items come out by ascending key, equal keys in the order they were pushed. One process owns the
    folder at a time; any number of its threads may use the queue. Others may read along with
    `read_only=True`: each call then sees the queue as it stands, and none can change it. Processes
    that each open it for moments take turns with `lock_wait_s`.

    >>> import tempfile, tidemill as tm
    >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...     receipt = queue.push([(3, b"c"), (1, b"a")])
    ...     queue.pop(10).rows()
    [(1, b'a'), (3, b'c')]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        bucket: BucketFunction | None = None,  # None: as recorded, Shift(37) for a new folder
        schema: pa.Schema | None = None,  # None: as recorded, `value: binary` for a new folder
        sync: SyncMode = "full",  # what is on disk before a call returns: pushes, takes, both, none
        on_corruption: CorruptionMode = "abort",  # "continue": set damaged records aside, go on
        read_only: bool = False,  # True: follow a queue that another process may own
        buckets_open_max: int = BUCKETS_OPEN_MAX,  # merges kept in memory for each fork; 0: none
        bytes_max: int | None = None,  # of the folder on disk
        when_full: WhenFull = "refuse",  # or "drop_oldest", by arrival
        lock_wait_s: float = 0.0,  # for another process to let the folder go, before `Locked`
        file_system: FileSystem | None = None,  # where the folder lives; for tests
        clock: Clock | None = None,  # what time it is; for tests
        maintain_in_background: bool = True,  # False: within the calls that make it due
        segment_bytes: int
        | None = None,  # of a new folder; None: 64 MiB, less for a small bytes_max
    ) -> None:
        if isinstance(path, str) and "://" in path:
            raise InvalidInput("a priority queue is kept in a folder; a URL names a log: tm.Log")
        _check_options(sync, on_corruption, when_full)
        _check_number("buckets_open_max", buckets_open_max, 0)
        _check_number("bytes_max", bytes_max, BYTES_MAX_LEAST)
        _check_number("segment_bytes", segment_bytes, 1, SEGMENT_BYTES_MAX)
        _check_room(_segment_bytes(segment_bytes, bytes_max), bytes_max)
        if schema is not None and not isinstance(schema, pa.Schema):
            raise InvalidInput(f"schema is a pyarrow.Schema, not a {type(schema).__name__}")
        options = FolderOptions(
            bucket=bucket,
            schema=schema,
            sync=sync,
            on_corruption=on_corruption,
            buckets_open_max=buckets_open_max,
            segment_bytes=_segment_bytes(segment_bytes, bytes_max),
            lock_wait_s=wait_seconds(lock_wait_s, what="lock_wait_s"),
        )
        fs, clock = file_system or LocalFileSystem(), clock or SystemClock()
        if read_only:
            follower = Follower(fs, clock, whole_path(folder_path(path, "a queue")), options)
            super().__init__(ReaderCore(follower), follower.cursors[ROOT])
            return
        folder = Folder(fs, clock, whole_path(folder_path(path, "a queue")), options)
        maintenance = Maintenance(folder, in_background=maintain_in_background)
        room = Room(folder, maintenance, bytes_max=bytes_max, when_full=when_full)
        core = QueueCore(folder, maintenance, room)
        super().__init__(core, folder.cursors[ROOT])
        self._bytes_max = bytes_max
        try:
            _check_room(folder.journal.segment_bytes, bytes_max)
            if bytes_max is not None:
                # What may be taken is for items.
                with storage_errors("opening", folder.path):
                    folder.journal.spare.refuse()
            if folder.damages:
                core.set_aside(folder.damages)
        except BaseException:
            self.close()
            raise

    @property
    def path(self) -> Path:
        return self._core.view.path

    @property
    def schema(self) -> pa.Schema:
        """The newest version of the payload's schema."""
        return self._core.view.payload_schema

    def push(self, data: object, *, key: str | None = None) -> Receipt:
        """Add items for every fork: all of them, or none if it raises.

        `data` is a list of (key, payload) pairs, payloads or dicts, or anything that speaks Arrow:
        a table, a batch, a pandas or polars frame. `key` names the column to order by; without one
        it is `key`, or else the time of the push.

        >>> import tempfile, tidemill as tm, pyarrow as pa
        >>> cities = pa.schema([("city", pa.string())])
        >>> with tm.PriorityQueue(tempfile.mkdtemp(), schema=cities) as queue:
        ...     table = pa.table({"rank": [2, 1], "city": ["Lyon", "Oslo"]})
        ...     receipt = queue.push(table, key="rank")
        ...     queue.pop().rows()
        [(1, {'city': 'Oslo'})]
        """
        self._check()
        folder = self._core.folder
        given = folder.preparation.given(data, key)
        count = given.row_count
        if count == 0:
            return push_receipt(folder, None, 0)
        operation = push_operation(folder, given)
        if self._bytes_max is None:
            folder.commit(operation)
        else:
            with self._core.room.reserved(bytes_needed(folder, operation)):
                folder.commit(operation)
        self._core.maintenance.after_push()
        return push_receipt(folder, operation, count)

    def forks(self) -> list[str]:
        """The names of all forks, in the order they were made.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     audit, backup = queue.fork("audit"), queue.fork("backup")
        ...     queue.forks()
        ['audit', 'backup']
        """
        self._check()
        view = self._core.view
        with view.guard:
            return [fork.name for fork in view.state.forks.values() if fork.id != ROOT]

    def consumer(self, name: str, *, start: Start = "latest") -> Consumer:
        """A reader of every item that is pushed, in the order of arrival, whose pointer lasts.

        A new one begins behind the last item there is, with "earliest" at the first one that is
        still on disk, or at a given arrival number. A queue that is open to be read only can have
        consumers as well.

        >>> import tempfile, tidemill as tm
        >>> folder = tempfile.mkdtemp()
        >>> with tm.PriorityQueue(folder) as queue:
        ...     with tm.PriorityQueue(folder, read_only=True) as reader:
        ...         billing = reader.consumer("billing")
        ...         receipt = queue.push([(2, b"b")])
        ...         billing.read().rows()
        [(2, b'b')]
        """
        return Consumer(self._core, name, start)

    def consumers(self) -> dict[str, int]:
        """The pointers of all consumers, by name.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     billing = queue.consumer("billing")
        ...     queue.consumers()
        {'billing': 0}
        """
        self._check()
        view = self._core.view
        with storage_errors("reading the consumers of", view.path):
            return read_pointers(view.fs, view.path)

    def sync(self) -> None:
        """Make everything pushed and popped so far last, whatever the sync mode.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp(), sync="none") as queue:
        ...     receipt = queue.push([b"a"])
        ...     queue.sync()
        """
        self._check()
        self._core.folder.sync()

    def stats(self) -> Stats:
        """A look at the queue.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     queue.stats().segments
        1
        """
        self._check()
        view = self._core.view
        with view.guard:
            state = view.state
            return Stats(
                items=state.forks[ROOT].live,
                forks={fork.name: fork.live for fork in state.forks.values() if fork.id != ROOT},
                next_seq=state.next_seq,
                buckets=len(view.index),
                segments=len(view.segments),
                disk_bytes=view.disk_bytes,
                cuts=sum(len(fork.cuts) for fork in state.forks.values()),
                quarantined=len(state.quarantined),
                dropped=state.dropped,
            )

    def close(self) -> None:
        """Finish what is under way and let the folder go; closing twice does no harm.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> queue.close()
        """
        if self._core.view.is_here:
            for one in list(self._core.view.attached):
                one.close()
            self._core.close()

    def __repr__(self) -> str:
        view = self._core.view
        state = "closed" if view.is_closed else f"{self._cursor.fork.live} items"
        return f"<PriorityQueue {str(view.path)!r}, {state}>"


def _check_options(sync: object, on_corruption: object, when_full: object) -> None:
    for name, value, allowed in (
        ("sync", sync, ("none", "data", "index", "full")),
        ("on_corruption", on_corruption, ("abort", "continue")),
        ("when_full", when_full, ("refuse", "drop_oldest")),
    ):
        if not isinstance(value, str) or value not in allowed:
            raise InvalidInput(f"{name} is one of {', '.join(allowed)}, not {shown(value)}")


def _check_number(name: str, value: object, least: int, most: int | None = None) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{name} is a whole number from {least} on, not {shown(value)}")
    if most is not None and value > most:
        raise InvalidInput(f"{name} is {most} at most, not {shown(value)}")


def _check_room(segment_bytes: int, bytes_max: int | None) -> None:
    if bytes_max is not None and bytes_max < 4 * segment_bytes:
        raise InvalidInput(
            f"bytes_max is at least 4 segments, here of {segment_bytes} bytes, "
            f"not {shown(bytes_max)}"
        )


def _segment_bytes(given: int | None, bytes_max: int | None) -> int:
    if given is not None:
        return max(given, SEGMENT_BYTES_MIN)
    if bytes_max is None:
        return SEGMENT_BYTES
    return max(min(SEGMENT_BYTES, bytes_max // 8), SEGMENT_BYTES_MIN)
