"""The reference: a log in this process, which does what the contract says and nothing else.

A shelf holds the log; each store is one user of it, as a process is of a server. It has as many
lanes as it is told, so that what the contract says of appends side by side can be tried out
without a server. Frames are kept as bytes, and verified when they are read.
"""

from __future__ import annotations

import copy
import threading
import weakref
from bisect import bisect_left
from collections.abc import Callable, Sequence

import pyarrow as pa

from tidemill.batch import DEFAULT, Layout, LogBatch, SchemaVersions, unpack_header
from tidemill.clock import Clock, SystemClock
from tidemill.errors import Closed, Corrupt, StorageFailed, TidemillError
from tidemill.files.queue.receipt import Durability
from tidemill.held_condition import HeldCondition
from tidemill.log.contract import (
    Capabilities,
    ConsumerClaim,
    ConsumerState,
    Ends,
    LogFrame,
    LogStore,
    LogWriter,
    Mark,
    NoteChange,
    Reservation,
    Withdrawn,
)
from tidemill.log.frames import decode_frame, from_seq, missing, pack_frame_header
from tidemill.log.home import Home
from tidemill.log.numbering import Numbering
from tidemill.log.refusals import (
    check_unused,
    consumer_fenced,
    not_there_yet,
    note_changed,
    publisher_fenced,
    trimmed,
)
from tidemill.names import check_name, check_unique


class Shelf:
    """What is shared by all who use one log in memory."""

    def __init__(self, *, lanes: int = 1, clock: Clock | None = None) -> None:
        self.lanes = lanes
        self.clock = SystemClock() if clock is None else clock
        self.mutex = threading.RLock()
        self.changed = HeldCondition(self.mutex)
        self.versions: SchemaVersions | None = None
        self.first = 1
        self.next = 1
        self.time_us = 0
        self.epoch = 0
        self.token = 0  # the last one that was given, to whatever consumer
        self.frames: list[bytes] = []  # readable, in order
        self.lasts: list[int] = []  # the last number of each
        self.marks: dict[str, Mark] = {}
        self.consumers: dict[str, ConsumerState] = {}
        self.notes: dict[str, str] = {}
        self.watchers: set[Callable[[], None]] = set()
        self.hurdle: Callable[[int, Reservation], None] | None = (
            None  # for tests; may wait or raise
        )

    def open(self, schema: pa.Schema | None = None) -> MemoryLog:
        """Another user of this log."""
        return MemoryLog(self, schema)

    def held(self, claim: ConsumerClaim) -> ConsumerState:
        """The state of a consumer, if the claim still counts. Called under the lock."""
        state = self.consumers.get(claim.name)
        if state is None or state.token != claim.token:
            raise consumer_fenced(claim.name)
        return state

    def tell(self) -> None:
        """Wake those that wait for rows, or hold a consumer. Called under the lock."""
        for watcher in list(self.watchers):
            watcher()


class MemoryLog(LogStore):
    """One user of a log in memory.

    >>> log = Shelf().open()
    >>> log.ends(), log.consumers()
    (Ends(first=1, next=1), {})
    """

    capabilities = Capabilities(persistent=False, many_processes=True, poll_s=None)
    place = "memory"

    def __init__(self, shelf: Shelf, schema: pa.Schema | None = None) -> None:
        self._shelf = shelf
        self._home = Home("the log")
        self._is_closed = False
        self._watchers: set[Callable[[], None]] = set()
        self._writers: weakref.WeakSet[MemoryWriter] = weakref.WeakSet()
        with shelf.mutex:
            if shelf.versions is None:
                shelf.versions = SchemaVersions([DEFAULT if schema is None else schema])
            elif schema is not None:
                shelf.versions = shelf.versions.evolve(schema)

    @property
    def versions(self) -> SchemaVersions:
        versions = self._open().versions
        assert versions is not None  # Whoever opened the shelf has set it.
        return versions

    def ends(self) -> Ends:
        shelf = self._open()
        with shelf.mutex:
            return Ends(shelf.first, shelf.next)

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        shelf = self._open()
        with shelf.mutex:
            if start < shelf.first:
                raise trimmed(start, shelf.first)
            if start >= shelf.next:
                return []
            end = shelf.next
            index = bisect_left(shelf.lasts, start)
            frames = shelf.frames[index : index + rows_max]
        found: list[LogBatch] = []
        size = 0
        for data in frames:
            if size and size + len(data) > bytes_max:
                break
            try:
                batch = decode_frame(data, self.versions)
            except Corrupt as damage:
                if found:
                    break
                raise Corrupt(f"the frame with row {start} is damaged: {damage.reason}") from damage
            if found and batch.first_seq != start:
                break  # The next call says what is missing.
            part = from_seq([batch], start)
            part[0] = part[0].slice(0, rows_max)
            found += part
            rows_max -= len(part[0])
            size += len(data)
            start = part[0].next_seq
            if not rows_max:
                break
        if not found:
            raise missing(start, end - 1)
        return found

    def seq_at(self, time_us: int) -> int:
        shelf = self._open()
        with shelf.mutex:
            headers = [unpack_header(frame) for frame in shelf.frames]
            later = [header.first_seq for header in headers if header.time_us >= time_us]
            return max(later[0], shelf.first) if later else shelf.next

    def layout(self, start: int, end: int) -> Layout:
        shelf = self._open()
        with shelf.mutex:
            low = bisect_left(shelf.lasts, max(start, shelf.first))
            high = bisect_left(shelf.lasts, end) + 1
            headers = [unpack_header(frame) for frame in shelf.frames[low:high]]
            sizes = [len(frame) for frame in shelf.frames[low:high]]
        return Layout.of(
            (header.first_seq, header.rows, size)
            for header, size in zip(headers, sizes, strict=True)
            if start < end and header.first_seq < end
        )

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        shelf = self._open()
        with shelf.mutex:
            shelf.watchers.add(wakeup)
            self._watchers.add(wakeup)

        def unwatch() -> None:
            with shelf.mutex:
                shelf.watchers.discard(wakeup)
                self._watchers.discard(wakeup)

        return unwatch

    def claim(self) -> LogWriter:
        shelf = self._open()
        with shelf.mutex:
            shelf.epoch += 1
            writer = MemoryWriter(shelf, shelf.epoch)
            shelf.changed.notify_all()
        self._writers.add(writer)
        return writer

    def consumers(self) -> dict[str, ConsumerState]:
        shelf = self._open()
        with shelf.mutex:
            return dict(shelf.consumers)

    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:
        shelf = self._open()
        check_name(name, what="consumer")
        with shelf.mutex:
            check_unique(name, shelf.consumers, what="consumer")
            state = shelf.consumers.get(name)
            if state is None:
                state = ConsumerState(min(max(start, shelf.first), shelf.next) - 1, 0)
            shelf.token += 1
            shelf.consumers[name] = state = state._replace(token=shelf.token)
            shelf.tell()
            return ConsumerClaim(name, state.token, state.pointer)

    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:
        shelf = self._open()
        with shelf.mutex:
            state = shelf.held(claim)
            if pointer >= shelf.next:
                raise not_there_yet(pointer, shelf.next)
            if pointer > state.pointer:
                shelf.consumers[claim.name] = state._replace(pointer=pointer)

    def check_claim(self, claim: ConsumerClaim) -> None:
        shelf = self._open()
        with shelf.mutex:
            shelf.held(claim)

    def remove_consumer(self, name: str) -> None:
        shelf = self._open()
        check_name(name, what="consumer")
        with shelf.mutex:
            shelf.consumers.pop(name, None)
            shelf.tell()

    def trim(self, before: int, *, force: bool = False) -> int:
        shelf = self._open()
        with shelf.mutex:
            before = min(before, shelf.next)
            if not force:
                pointers = [state.pointer + 1 for state in shelf.consumers.values()]
                before = min([before, *pointers])
            shelf.first = max(shelf.first, before)
            gone = bisect_left(shelf.lasts, shelf.first)
            del shelf.frames[:gone], shelf.lasts[:gone]
            return shelf.first

    def begin_at(self, first: int) -> None:
        shelf = self._open()
        with shelf.mutex:
            check_unused(Ends(shelf.first, shelf.next), first, self.place)
            shelf.first = shelf.next = first
            shelf.epoch += 1
            shelf.changed.notify_all()

    def release(self, before: int) -> None:
        shelf = self._open()
        with shelf.mutex:
            gone = bisect_left(shelf.lasts, min(before, shelf.next))
            del shelf.frames[:gone], shelf.lasts[:gone]

    def notes(self) -> dict[str, str]:
        shelf = self._open()
        with shelf.mutex:
            return dict(shelf.notes)

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        shelf = self._open()
        check_name(name, what="note")
        with shelf.mutex:
            if shelf.notes.get(name) != expected:
                return False
            shelf.notes[name] = value
            return True

    def close(self) -> None:
        self._is_closed = True
        for writer in list(self._writers):
            writer.close()
        with self._shelf.mutex:
            self._shelf.watchers -= self._watchers

    def _open(self) -> Shelf:
        if self._is_closed:
            raise Closed("the log was closed; open it again")
        self._home.check()
        return self._shelf


class MemoryWriter(LogWriter):
    """The right to append to a log in memory."""

    def __init__(self, shelf: Shelf, epoch: int) -> None:
        self._shelf = shelf
        self.epoch = epoch
        self.lanes = shelf.lanes
        self._numbering = Numbering(shelf.next)
        self._durable: dict[Reservation, tuple[Sequence[LogFrame], Sequence[Mark]]] = {}
        self._is_closed = False
        self._failure: TidemillError | None = None

    def mark(self, producer: str) -> Mark | None:
        with self._shelf.mutex:
            self._check()
            return self._shelf.marks.get(producer)

    def reserve(self, rows: int, after: int | None = None) -> Reservation:
        with self._shelf.mutex:
            self._check()
            return self._numbering.reserve(rows, after)

    def append(
        self,
        lane: int,
        reservation: Reservation,
        frames: Sequence[LogFrame],
        marks: Sequence[Mark] = (),
    ) -> Durability:
        shelf = self._shelf
        try:
            if shelf.hurdle is not None:
                shelf.hurdle(lane, reservation)
            with shelf.mutex:
                try:
                    self._append(reservation, frames, marks)
                except (TidemillError, Withdrawn):
                    raise
                except BaseException:
                    # What the books say is not known, so that nobody may go on with them.
                    self.give_up(StorageFailed("an append was interrupted; open a new publisher"))
                    raise
        except (TidemillError, Withdrawn):
            with shelf.mutex:
                self._durable.pop(reservation, None)
                for higher in self._numbering.withdraw(reservation):
                    self._durable.pop(higher, None)
                shelf.changed.notify_all()
            raise
        return "buffered"

    def give_up(self, failure: TidemillError) -> None:
        with self._shelf.mutex:
            self._failure = self._failure or failure
            self._shelf.changed.notify_all()

    def skip(
        self, reservation: Reservation, time_us: int, note: NoteChange, marks: Sequence[Mark] = ()
    ) -> Durability:
        shelf = self._shelf
        with shelf.mutex:
            try:
                self._check()
                self._numbering.check(reservation)
                if shelf.notes.get(note.name) != note.expected:
                    raise note_changed(note)
            except BaseException:
                self._numbering.withdraw(reservation)
                raise
            self._numbering.durable(reservation)
            shelf.next = reservation.last + 1
            shelf.time_us = max(shelf.time_us, time_us)
            shelf.notes[note.name] = note.value
            shelf.marks.update({mark.producer: mark for mark in marks})
            shelf.tell()
        return "buffered"

    def close(self) -> None:
        with self._shelf.mutex:
            self._is_closed = True
            self._shelf.changed.notify_all()

    def _append(
        self, reservation: Reservation, frames: Sequence[LogFrame], marks: Sequence[Mark]
    ) -> None:
        """Return once readers can see it. Called under the lock."""
        self._check()
        self._numbering.check(reservation)
        self._durable[reservation] = (frames, marks)
        for covered in self._numbering.durable(reservation):
            self._show(covered)
        while reservation in self._durable:
            self._shelf.changed.wait()
            self._check()
            self._numbering.check(reservation)

    def _show(self, reservation: Reservation) -> None:
        """Let readers see an append. Called under the lock."""
        shelf = self._shelf
        frames, marks = self._durable[reservation]
        time_us = max(shelf.time_us, shelf.clock.time_ns() // 1000)
        packed: list[bytes] = []
        lasts: list[int] = []
        after = shelf.next
        for frame in frames:
            packed.append(pack_frame_header(frame, after, time_us) + bytes(frame.body.buffer))
            after += frame.body.rows
            lasts.append(after - 1)
        newest = {mark.producer: mark for mark in marks}
        # Nothing is called until all of it is there, so that no interrupt can come between.
        shelf.frames += packed
        shelf.lasts += lasts
        shelf.marks |= newest
        shelf.next, shelf.time_us = after, time_us
        del self._durable[reservation]
        shelf.changed.notify_all()
        shelf.tell()

    def _check(self) -> None:
        if self.epoch != self._shelf.epoch:
            raise publisher_fenced(self.epoch, self._shelf.epoch)
        if self._failure is not None:
            raise copy.copy(self._failure) from self._failure
        if self._is_closed:
            raise Closed("the publisher was closed; open a new one")
