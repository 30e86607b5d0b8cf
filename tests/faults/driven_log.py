"""A log in memory and its model, driven together, for every test that breaks the disk under it.

As with `driven_queue`: each operation is noted before it is tried, and promised once it returned
and its sync mode says that it lasts. What a fault left must be the state after the first k
operations, acknowledged ≤ k ≤ attempted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tests.faults.checker import ACKNOWLEDGED, ATTEMPTED, Violation, bounds
from tests.faults.driven_queue import StillClock
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Trace
from tests.log.contract.writing import append, read_all
from tidemill.files.disk.filesystem import FileSystem
from tidemill.log.contract import LogWriter, Mark
from tidemill.log.on_files.place import LogPlace
from tidemill.log.on_files.store import FileLog

ROOT = Path("/queues/log")
SEGMENT_BYTES = 16 * 1024
Sync = Literal["none", "full"]


class Contents(NamedTuple):
    """Everything that a log says."""

    first: int
    rows: tuple[bytes, ...]
    mark: Mark | None
    notes: tuple[tuple[str, str], ...]


def open_log(fs: FileSystem, *, sync: Sync = "full", read_only: bool = False) -> FileLog:
    return FileLog(
        ROOT,
        sync=sync,
        read_only=read_only,
        file_system=fs,
        clock=StillClock(),
        segment_bytes=SEGMENT_BYTES,
    )


def contents(log: FileLog) -> Contents:
    """What a log holds, after checking that its numbers are dense."""
    first, next_seq = log.ends()
    rows = read_all(log)
    if len(rows) != next_seq - first:
        raise Violation(f"rows {first} to {next_seq - 1} should be there, {len(rows)} are")
    marks = log._view.state.log.marks
    return Contents(first, tuple(rows), marks.get("loader"), tuple(sorted(log.notes().items())))


class DrivenLog:
    """Operations on a log, each noted in the model and marked in the trace."""

    def __init__(self, *, sync: Sync = "full") -> None:
        self.fs = MemoryFileSystem()
        self.disk: FileSystem = self.fs
        self.fs.mark(ATTEMPTED, 0, promise=False)
        self.sync: Sync = sync
        self.states = [Contents(1, (), None, ())]
        self.base = 0
        self.acked = 0  # the pointer of the consumer that is stored for good
        self._rows = 0
        self.log = open_log(self.disk, sync=sync)
        self.writer: LogWriter = self.log.claim()

    @property
    def state(self) -> Contents:
        return self.states[-1]

    def start_trace(self) -> None:
        """Everything so far lasts; crashes are looked for from here on."""
        self.reopen()
        self.fs.trace = Trace(self.fs.image())
        self.base = len(self.states) - 1

    def append(self, count: int, *, length: int = 20, number: int | None = None) -> None:
        rows = [self._row(length) for _ in range(count)]
        state = self.state
        marks: Sequence[Mark] = ()
        if number is not None:
            first = state.first + len(state.rows)
            marks = [Mark("loader", number, first, first + count - 1, b"digest")]
        after = state._replace(rows=(*state.rows, *rows), mark=marks[0] if marks else state.mark)
        self._do(after, lambda: append(self.writer, rows, marks), self.sync == "full")

    def trim(self, before: int) -> None:
        state = self.state
        before = max(state.first, min(before, self.acked + 1))
        after = state._replace(first=before, rows=state.rows[before - state.first :])
        self._do(after, lambda: self.log.trim(before), True)

    def begin(self, first: int) -> None:
        """The log, which has no rows yet, gets the number of its first."""

        def work() -> None:
            self.writer.close()
            self.log.begin_at(first)

        self._do(self.state._replace(first=first), work, True)
        self.claim()

    def note(self, value: str) -> None:
        after = self.state._replace(notes=(("archive", value),))
        expected = dict(self.state.notes).get("archive")
        self._do(after, lambda: self.log.set_note("archive", value, expected=expected), True)

    def ack(self) -> None:
        """A consumer acks all that is there."""
        pointer = self.state.first + len(self.state.rows) - 1

        def work() -> None:
            claim = self.log.claim_consumer("c", start=1)
            self.log.move_pointer(claim, pointer)

        self._do(self.state, work, self.sync == "full")
        self.acked = pointer

    def claim(self) -> None:
        """Another publisher in the same process."""

        def work() -> None:
            self.writer = self.log.claim()

        self._do(self.state, work, False)

    def reopen(self) -> None:
        def work() -> None:
            self.log.close()
            self._open()

        self._do(self.state, work, True)

    def kill(self) -> None:
        """End the process, but not the machine, and open again: what was found must then last."""

        def work() -> None:
            place = self.log._place
            self.fs.die()
            place.owner = place.newest = None
            self._open()

        self._do(self.state, work, True)

    def bounds_of(self, marks: Iterable[object]) -> tuple[int, int]:
        """How many operations must have survived a crash, and how many can have."""
        acknowledged, attempted = bounds(marks)
        return max(acknowledged, self.base), max(attempted, self.base)

    def check(self, found: Contents, acknowledged: int, attempted: int) -> int:
        """How many operations survived; raises `Violation` if no number is right."""
        for count in range(attempted, acknowledged - 1, -1):
            if self.states[count] == found:
                return count
        raise Violation(
            f"{found} is not the state after any of the operations {acknowledged} to {attempted}; "
            f"it should be {self.states[acknowledged]} or later"
        )

    def _open(self) -> None:
        self.log = open_log(self.disk, sync=self.sync)
        self.writer = self.log.claim()

    def _row(self, length: int) -> bytes:
        self._rows += 1
        return f"#{self._rows};".encode().ljust(length, b".")

    def _do(self, after: Contents, work: Callable[[], Any], lasts: bool) -> None:
        self.states.append(after)
        number = len(self.states) - 1
        self.fs.mark(ATTEMPTED, number, promise=False)
        work()
        if lasts:
            self.fs.mark(ACKNOWLEDGED, number)


def forget_place(fs: FileSystem) -> None:
    """The process that owned the log is no more."""
    place = LogPlace.of(fs, ROOT)
    place.owner = place.newest = None
