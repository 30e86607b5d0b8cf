"""The right to append to a log on a server.

An append writes its row in the table of its lane, then the writer pointer moves over it:

    lanes, side by side       insert a row, if the epoch is still ours      ─┐  any order
    whoever comes first       move the pointer over all that is without a   ◀┘
                              hole, with the producers' marks, if the epoch
                              is still ours
    all whose rows it covers  return

An append with nothing under way before it does both in one transaction, in one commit.

When a connection breaks, nobody knows whether its last statement took effect. Then the writer takes
a new epoch, which only it may follow itself in: that removes every row above the pointer, and tells
where the pointer is. What it covers was written; all else is written again, with the same numbers.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tidemill.clock import Clock
from tidemill.errors import Bug, Closed, Fenced, OutcomeUnknown, TidemillError, Unavailable
from tidemill.files.queue.receipt import Durability
from tidemill.held_condition import HeldCondition
from tidemill.limits import FRAME_BODY_BYTES_MAX
from tidemill.log.contract import LogFrame, LogWriter, Mark, NoteChange, Reservation, Withdrawn
from tidemill.log.refusals import publisher_fenced
from tidemill.log.sql.address import Address
from tidemill.log.sql.appending import Also, note_change, show, write_and_show, write_rows
from tidemill.log.sql.connection import Busy, Connection, HalfWritten, Lost, Overtaken
from tidemill.log.sql.lane_connections import LaneConnections
from tidemill.log.sql.marks import stored_mark
from tidemill.log.sql.patience import Patience
from tidemill.log.sql.pool import Pool
from tidemill.log.sql.rows import PackedRow, check_fit, pack_rows
from tidemill.log.sql.statements import BEGIN, COMMIT, Statements
from tidemill.log.sql.takeover import Taken, is_there, take_over
from tidemill.log.sql.throttle import Throttle
from tidemill.log.sql.under_way import Numbers, UnderWay

GROUP_BYTES = 4 << 20  # of one append; a reader fetches at least a whole one
_PACKET_SPARE_BYTES = 4096  # beside the frames: the statement's other values, and a frame's header
_SETTINGS_S = 1.0  # how often the server's settings are looked at while writing


class _Superseded(Exception):
    """This writer has taken a newer epoch since; look again, and write again if need be."""


class ServerWriter(LogWriter):
    """Made by `ServerLog.claim`, which takes the next epoch."""

    # A commit costs as much as some thousand small rows, so that little is better waited for.
    lane_bytes_min = 64 << 10

    def __init__(
        self,
        address: Address,
        statements: Statements,
        pool: Pool,
        *,
        clock: Clock,
        writes_per_second_max: float | None,
        on_shown: Callable[[], None],
    ) -> None:
        self._address = address
        self._statements = statements
        self._pool = pool
        self._clock = clock
        self._on_shown = on_shown
        self._owner = os.urandom(16)
        self.lanes = len(statements.shards)
        self._throttle = Throttle(writes_per_second_max, lanes=self.lanes, clock=clock)
        self._mutex = threading.RLock()
        self._changed = HeldCondition(self._mutex)
        self._recovery = threading.Lock()
        self._is_closed = False
        self._is_settling = False  # a takeover is under way; nothing new is written
        self._is_showing = False  # somebody moves the pointer
        self._active: set[Numbers] = set()  # appends under way
        self._failure: TidemillError | None = None
        # The last one is the pointer's.
        self._connections = LaneConnections(address, self._owner, self.lanes + 1)

        self._settings_s = time.monotonic()
        self._settings = pool.run(lambda connection: connection.settings())
        packet = self._settings.packet_bytes_max
        self._row_bytes_max = packet - _PACKET_SPARE_BYTES
        self.frame_bytes_max = max(0, min(self._row_bytes_max - 128, FRAME_BODY_BYTES_MAX))
        self.frame_bytes_setting = self._settings.packet_advice
        self.group_bytes = min(GROUP_BYTES, self.frame_bytes_max)

        taken = pool.run(lambda connection: take_over(connection, statements, self._owner))
        self.epoch = self._first_epoch = taken.epoch
        self._books = UnderWay(taken.pointer, taken.time_us)

    def mark(self, producer: str) -> Mark | None:
        with self._mutex:
            self._check()
        return self._stored_mark(producer)

    def turn_s(self, lane: int) -> float:
        return self._throttle.turn_s(lane)

    def reserve(self, rows: int, after: int | None = None) -> Numbers:
        with self._mutex:
            self._check()
            if after is not None and after != self._books.next_seq - 1:
                raise Withdrawn
            return self._books.reserve(rows, self._clock.time_ns() // 1000)

    def append(
        self,
        lane: int,
        reservation: Reservation,
        frames: Sequence[LogFrame],
        marks: Sequence[Mark] = (),
        *,
        also: Also | None = None,  # what else belongs to the transaction, of an append by itself
    ) -> Durability:
        if not isinstance(reservation, Numbers):
            raise Bug("the numbers were not reserved with this writer")
        numbers = reservation
        rows = pack_rows(frames, numbers.first, numbers.time_us, bytes_max=self._row_bytes_max)
        try:
            with self._mutex:
                self._check()
                self._active.add(numbers)
            self._append(lane, numbers, rows, marks, also)
        except Fenced:
            if not self._is_there(lane, numbers, rows, marks):
                raise
        except (TidemillError, Withdrawn):
            raise
        except BaseException as cause:
            # Interrupted anywhere: what is known of the rows is known by looking alone.
            self.give_up(OutcomeUnknown(f"an append to {self._address.place} was interrupted"))
            raise cause
        finally:
            try:
                self._end(numbers)
            except BaseException:
                self._end(numbers)  # Interrupted here as well: whoever closes must not wait.
                raise
        self._on_shown()
        return self._settings.durability

    def skip(
        self, reservation: Reservation, time_us: int, note: NoteChange, marks: Sequence[Mark] = ()
    ) -> Durability:
        if isinstance(reservation, Numbers):
            reservation.time_us = self._books.not_before(time_us)
        return self.append(0, reservation, (), marks, also=note_change(self._statements, note))

    def close(self) -> None:
        with self._mutex:
            self._is_closed = True
            while self._active:
                self._changed.wait()
            self._connections.close()

    def _end(self, numbers: Numbers) -> None:
        with self._mutex:
            self._active.discard(numbers)
            self._changed.notify_all()

    def _append(
        self,
        lane: int,
        numbers: Numbers,
        rows: Sequence[PackedRow],
        marks: Sequence[Mark],
        also: Also | None,
    ) -> None:
        """Write and show, again and again until it is known to have happened."""
        patience = Patience(self._pool.retry_s, self._pool.closing)
        losses = 0
        while True:
            epoch, leads = self._begin(numbers)
            if epoch is None:
                return
            try:
                if leads:
                    self._write_and_show(lane, numbers, rows, marks, epoch, also)
                elif also is not None:
                    raise Bug("an append that is more than its rows must be the only one")
                else:
                    self._write(lane, numbers, rows, epoch)
                    self._show(numbers, marks, epoch, patience)
                return
            except _Superseded:
                continue
            except Busy as cause:
                self._pause(patience, cause)
            except Lost as cause:
                numbers.may_count = True
                self._recover(epoch, cause, patience)
                losses += 1
                if losses > 1:
                    self._pause(patience, cause)
            except HalfWritten as cause:
                self._recover(epoch, cause, patience)
                self._pause(patience, cause)
            except Fenced as cause:
                self.give_up(cause)
                raise
            except TidemillError as cause:
                # The server refused, and nothing of this append is there. Rows with higher
                # numbers may be, which must go before their numbers are given again.
                self._withdraw(numbers, cause, patience)
                raise

    def _begin(self, numbers: Numbers) -> tuple[int | None, bool]:
        """The epoch to write under, None if it is shown already; and whether it comes first."""
        with self._mutex:
            while True:
                self._check(also_closed=False)
                if numbers.is_withdrawn:
                    raise Withdrawn
                if numbers.is_shown:
                    return None, False
                if not self._is_settling:
                    break
                self._changed.wait()
            leads = self._books.is_head(numbers) and not self._is_showing
            if leads:
                self._is_showing = True
            return self.epoch, leads

    def _write_and_show(
        self,
        lane: int,
        numbers: Numbers,
        rows: Sequence[PackedRow],
        marks: Sequence[Mark],
        epoch: int,
        also: Also | None,
    ) -> None:
        """Row, pointer and marks in one transaction."""
        done = False
        try:
            connection = self._connections.get(lane)
            self._throttle.wrote(lane)
            with self._dropping(lane, connection, epoch):
                self._check_fit(rows)
                write_and_show(
                    connection, self._statements, lane, rows, numbers, marks, epoch, also
                )
            done = True
        finally:
            self._has_shown([numbers] if done else [], epoch)
        self._look_at_settings(lane)

    def _write(self, lane: int, numbers: Numbers, rows: Sequence[PackedRow], epoch: int) -> None:
        """The rows alone."""
        if not rows:
            return
        connection = self._connections.get(lane)
        self._throttle.wrote(lane)
        with self._dropping(lane, connection, epoch):
            self._check_fit(rows)
            write_rows(connection, self._statements, lane, rows, numbers, epoch)

    def _check_fit(self, rows: Sequence[PackedRow]) -> None:
        settings = self._settings
        bytes_max = settings.packet_bytes_max - _PACKET_SPARE_BYTES
        check_fit(rows, bytes_max, settings.packet_setting)

    @contextmanager
    def _dropping(self, place: int, connection: Connection, epoch: int) -> Iterator[None]:
        """Let a connection go on which anything fails, and with it what it was doing."""
        try:
            try:
                yield
            except Overtaken:
                raise self._overtaken(connection, epoch) from None
        except BaseException:
            self._connections.drop(place)
            raise

    def _show(
        self, numbers: Numbers, marks: Sequence[Mark], epoch: int, patience: Patience
    ) -> None:
        """Wait until the pointer covers it, and move the pointer if nobody else does."""
        with self._mutex:
            if self.epoch != epoch:
                raise _Superseded
            self._books.written(numbers, marks)
            self._changed.notify_all()
        while True:
            with self._mutex:
                while True:
                    self._check(also_closed=False)
                    if numbers.is_withdrawn:
                        raise Withdrawn
                    if numbers.is_shown:
                        return
                    if self.epoch != epoch or self._is_settling:
                        raise _Superseded
                    covered = [] if self._is_showing else self._books.showable()
                    if covered:
                        self._is_showing = True
                        break
                    self._changed.wait()
            try:
                self._show_all(covered, epoch)
            except Busy as cause:
                self._pause(patience, cause)

    def _show_all(self, covered: list[Numbers], epoch: int) -> None:
        """Move the pointer over appends whose rows are written."""
        place = self.lanes
        marks = [mark for numbers in covered for mark in numbers.marks]
        done = False
        try:
            connection = self._connections.get(place)
            with self._dropping(place, connection, epoch):
                if marks:
                    connection.execute(BEGIN)
                show(connection, self._statements, covered, marks, epoch)
                if marks:
                    connection.execute(COMMIT)
            done = True
            # While this thread still has the connection.
            self._look_at_settings(place)
        finally:
            self._has_shown(covered if done else [], epoch)

    def _has_shown(self, covered: Sequence[Numbers], epoch: int) -> None:
        with self._mutex:
            self._books.shown(covered if self.epoch == epoch else [])
            self._is_showing = False
            self._changed.notify_all()

    def _overtaken(self, connection: Connection, epoch: int) -> Exception:
        """Why a statement found another epoch: this writer's own newer one, or somebody else's."""
        found, owner = connection.query_row(self._statements.epoch)
        newest = int(found)
        if bytes(owner) == self._owner:
            if newest == epoch:
                return Bug(f"the writer pointer is not where epoch {epoch} left it")
            return _Superseded()
        return publisher_fenced(epoch, newest)

    def _stored_mark(self, producer: str) -> Mark | None:
        return self._pool.run(
            lambda connection: stored_mark(connection, self._statements, producer)
        )

    def _is_there(
        self, lane: int, numbers: Numbers, rows: Sequence[PackedRow], marks: Sequence[Mark]
    ) -> bool:
        """Whether an append was covered by the pointer before somebody else took over.

        The takeover ended our connections, perhaps between a commit and its answer, and removed all
        rows that were not covered; so what is left under an epoch of ours counts.
        """
        if not numbers.may_count:
            return False
        try:
            if not rows:
                found = [self._stored_mark(mark.producer) for mark in marks]
                return bool(marks) and all(
                    there is not None and there.number >= mark.number
                    for there, mark in zip(found, marks, strict=True)
                )
            epochs = self._first_epoch, self.epoch
            return self._pool.run(
                lambda connection: is_there(connection, self._statements, lane, rows[0], epochs)
            )
        except Unavailable as end:
            raise self._unknown(end) from end

    def _withdraw(self, numbers: Numbers, cause: TidemillError, patience: Patience) -> None:
        with self._mutex:
            epoch = self.epoch
            self._is_settling = True
            self._books.withdraw(numbers)
            self._changed.notify_all()
        self._recover(epoch, cause, patience)

    def _recover(self, epoch: int, cause: Exception, patience: Patience) -> None:
        """Take a new epoch after `epoch`, and learn from it what is written."""
        with self._recovery:
            with self._mutex:
                self._check(also_closed=False)
                if self.epoch != epoch:
                    self._is_settling = False
                    self._changed.notify_all()
                    return  # Another lane has done it.
                self._is_settling = True
            try:
                taken = self._pool.run(lambda connection: self._renew(connection, epoch), patience)
                with self._mutex:
                    self.epoch = taken.epoch
                    self._books.taken_over(taken.pointer)
                    self._is_settling = False
                    self._changed.notify_all()
            except Unavailable as end:
                unknown = self._unknown(end)
                self.give_up(unknown)
                raise unknown from cause
            except TidemillError as refusal:
                # What made the server refuse may be mended, but not within this writer.
                self.give_up(type(refusal)(f"{refusal}; then open a new publisher"))
                raise

    def _renew(self, connection: Connection, epoch: int) -> Taken:
        self._settings = connection.settings()
        return take_over(connection, self._statements, self._owner, only_from=epoch)

    def _pause(self, patience: Patience, cause: Exception) -> None:
        try:
            patience.pause(cause)
        except Unavailable as end:
            unknown = self._unknown(end)
            self.give_up(unknown)
            raise unknown from cause

    def _unknown(self, end: Unavailable) -> OutcomeUnknown:
        return OutcomeUnknown(
            f"whether rows were written to {self._address.place} is unknown: {end}; a new "
            "publisher finds out"
        )

    def give_up(self, failure: TidemillError) -> None:
        """Let every later call raise the same; a new claim cleans up."""
        with self._mutex:
            if self._failure is None:
                self._failure = failure
            self._is_settling = False
            self._changed.notify_all()

    def _check(self, *, also_closed: bool = True) -> None:
        if self._failure is not None:
            raise type(self._failure)(*self._failure.args) from self._failure
        if also_closed and self._is_closed:
            raise Closed("the publisher was closed; open a new one")

    def _look_at_settings(self, place: int) -> None:
        """See now and then whether commits are still as durable as they were."""
        now_s = time.monotonic()
        if now_s - self._settings_s >= _SETTINGS_S:
            self._settings_s = now_s
            self._settings = self._connections.settings(place) or self._settings
