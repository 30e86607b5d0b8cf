"""What is known of an open folder: state, index and cursors. The owner's folder and a follower's
are both this.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from tidemill.clock import Clock
from tidemill.errors import Closed
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.format.settings import Settings
from tidemill.files.index.index import Index
from tidemill.files.journal.hold import Holds
from tidemill.files.journal.segment import Segment
from tidemill.files.merge.cursor import Cursor
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.state.bucket import BucketFunction
from tidemill.files.state.state import State
from tidemill.held_condition import HeldCondition
from tidemill.limits import BUCKETS_OPEN_MAX


class Attached(Protocol):
    """What ends with the handle it was made from."""

    def close(self) -> None: ...


class View:
    """An open folder, as far as reading it goes."""

    bucket: BucketFunction
    settings: Settings
    state: State
    index: Index
    reader: FrameReader
    segments: dict[int, Segment]
    holds: Holds
    syncs_pushes: bool  # whether what is pushed is synced
    syncs_takes: bool  # ... and what is consumed
    tolerates_damage: bool  # whether damaged frames are passed over
    wait_s_max = threading.TIMEOUT_MAX  # for how long to sleep at most, until news is looked for

    def __init__(self, fs: FileSystem, clock: Clock, path: Path) -> None:
        self.fs = fs
        self.clock = clock
        self.path = path
        self.pid = os.getpid()
        self.is_closed = False
        self.guard = threading.RLock()
        self.arrivals = HeldCondition(self.guard)  # told when something was committed
        self.waiting = 0  # threads that wait for it; guarded
        # Called under the guard when something was written or the folder is closed, by whichever
        # thread did it: those who cannot sleep on a condition hear of it here.
        self.watchers: list[Callable[[], None]] = []
        self.attached: weakref.WeakSet[Attached] = weakref.WeakSet()
        self.cursors: dict[int, Cursor] = {}
        self.buckets_open_max = BUCKETS_OPEN_MAX

    @property
    def disk_bytes(self) -> int:
        """What the segments take on disk."""
        raise NotImplementedError

    @property
    def arrived(self) -> int:
        """The number of the last item that may be seen: a later one may be on its way to the
        disk.
        """
        with self.guard:
            return self.state.arrived

    @property
    def payload_schema(self) -> pa.Schema:
        return self.settings.versions.newest

    @property
    def is_here(self) -> bool:
        """Whether this is still the process that opened it; os.fork() copies a handle."""
        return os.getpid() == self.pid

    def check_alive(self) -> None:
        """Raise if this handle may not be used."""
        if self.is_closed:
            raise Closed(f"{self.path} was closed; open it again to use it")
        if os.getpid() != self.pid:
            raise Closed(
                f"{self.path} was opened by process {self.pid} before os.fork(); open it anew "
                "after closing it there"
            )

    def check_open(self) -> None:
        """Raise if this handle may not be used. Called at the beginning of every call."""
        self.check_alive()

    def drop_moot_cuts(self) -> None:
        """Forget the cuts that cover no row of any frame there is. Called under the guard."""
        # A list, because a push may begin a segment meanwhile.
        bounds = {number: self.index.bounds(number) for number in list(self.segments)}
        for fork in self.state.forks.values():
            needed = [
                any(
                    number <= cut.place >> 32
                    and cut.low <= key_max
                    and key_min <= cut.high
                    and seq_min <= cut.arrived
                    for number, (key_min, key_max, seq_min) in bounds.items()
                )
                for cut in fork.cuts.all()
            ]
            fork.cuts.keep_if(needed)

    def _add_cursor(self, fork_id: int) -> Cursor:
        cursor = Cursor(
            self.state.forks[fork_id],
            state=self.state,
            index=self.index,
            reader=self.reader,
            guard=self.guard,
            buckets_open_max=self.buckets_open_max,
            payload_schema=lambda: self.payload_schema,
        )
        self.cursors[fork_id] = cursor
        return cursor
