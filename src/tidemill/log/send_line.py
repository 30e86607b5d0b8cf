"""The line of sends in front of a writer: gathered into groups, written, told how it went.

A thread that sends and finds a lane of the writer free uses it itself: it takes everything that
waits, its own rows among it, and has it written. Whoever comes meanwhile waits for the next group.
So the more threads send, the larger the groups are, and one thread alone waits for nobody. What was
sent with a future, and has no thread that waits for it, is written by a thread of the line's.

    submit ──▶ pending ──gather──▶ group: numbers reserved, in order ──append──▶ receipts
                  ▲                                           │
                  └──────────────── withdrawn ◀───────────────┘

Invariant: no lock is held and no lane is in use while a future is resolved, so that what is called
back may send, flush and close.

Invariant: an interrupt, which Python lets in behind any call, finds each send in one place, and
each lane free or in the turn of somebody who gives it back. So what belongs together is changed in
one breath, without a call in between; what is left to do is done before the interrupt goes on.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Iterable, Sequence

from tidemill.clock import Clock
from tidemill.errors import (
    Closed,
    Fenced,
    OutcomeUnknown,
    StorageFailed,
    SurroundingsError,
    TidemillError,
)
from tidemill.files.queue.receipt import Durability, Receipt
from tidemill.held_condition import HeldCondition
from tidemill.log.contract import Ends, LogFrame, LogWriter, Mark, Reservation, Withdrawn
from tidemill.log.ending import see_through_at_exit
from tidemill.log.home import Home
from tidemill.log.producer import Producer
from tidemill.log.room import Room
from tidemill.log.sends import Send, frames_of
from tidemill.log.starting import start
from tidemill.log.turn import Turn
from tidemill.log.waiting import Waiting

logger = logging.getLogger(__name__)

WORKER_IDLE_S = 10.0  # after which a thread that found nothing to write ends
_BREAKING = (Fenced, OutcomeUnknown, StorageFailed, Closed)  # after which a writer takes no more


class SendLine:
    """What waits to be written, and what is being written."""

    def __init__(
        self,
        writer: LogWriter,
        encode: Callable[[Sequence[Send]], list[LogFrame]],
        *,
        producer: Producer | None,
        bytes_max: int,
        clock: Clock,
        ends: Ends,
        durability: Durability,
    ) -> None:
        self._writer = writer
        self._encode = encode
        self._producer = producer
        self._clock = clock
        self._next_seq = ends.next  # for the receipts of sends of nothing
        self._durability = durability
        self._home = Home("the publisher")
        self._mutex = threading.RLock()
        self._changed = HeldCondition(self._mutex)
        self._room = Room(self._changed, bytes_max)
        self._pending = Waiting()
        self._turns: list[Turn | None] = [None] * writer.lanes  # who uses each lane
        self._written_bytes = 0  # of all that is being written
        self._told: list[Turn] = []  # written; their senders are being told
        self._settles = False  # after a failure, until all that was under way has ended
        self._reserved = 0  # the last number that was reserved
        self._orders = 0
        self._workers: list[threading.Thread] = []
        self.is_closing = False
        self._is_closed = False
        self._failure: TidemillError | None = None
        see_through_at_exit(self)

    def has_room(self, send: Send) -> bool:
        """Whether a send could be put in line now, without waiting."""
        self._home.check()
        with self._mutex:
            self._check()
            return self._has_room(send)

    def submit(self, send: Send) -> bool:
        """Put a send in line; False if there is nothing to be done about it."""
        self._home.check()
        with self._mutex:
            while True:
                self._check()
                if self._has_room(send):
                    break
                self._room.ask(send)
                tellers = [told.teller for told in self._told]
                if threading.get_ident() in tellers and self._may_write():
                    self.call_worker()  # Who is called back may be the last who could make room.
                self._changed.wait()
            self._room.leave(send)
            if self._producer is not None and self._producer.knows(send, self._durability):
                return False
            if not send.count and send.number is None:
                send.receipt = Receipt(self._next_seq, self._next_seq - 1, 0, self._durability)
                return False
            self._orders += 1
            send.order = self._orders
            self._pending.append(send)
            return True

    def withdraw(self, send: Send) -> bool:
        """Take a send out of the line again; False if it is being written, or is numbered: those
        behind it must not pass it.
        """
        with self._mutex:
            if send.number is not None or send not in self._pending:
                return False
            self._pending = self._pending.without([send])
            self._changed.notify_all()
            return True

    def flush(self) -> None:
        """Return once everything submitted before is done."""
        self._home.check()
        with self._mutex:
            until = self._orders
        self._drain(until)

    def close(self) -> None:
        """Take no more, and return once everything submitted is done."""
        if not self._home.is_here:
            return
        with self._mutex:
            self.is_closing = True
            until = self._orders
            self._changed.notify_all()
        self._drain(until)
        with self._mutex:
            self._is_closed = True
            self._changed.notify_all()
        self._writer.close()

    def see_through(self) -> None:
        """The interpreter ends: write what was sent."""
        self.close()

    def wait(self, send: Send) -> None:
        """Sleep until a send is done, or write it oneself if a lane is free."""
        while not send.is_done or send.turn is not None:
            self._write_or_sleep(send)
        if send.told_in is not None:
            send.told_in.wake_next()

    def leave(self, send: Send, cause: BaseException) -> None:
        """The sender was interrupted: its send is withdrawn, unless it is being written."""
        if self._home.is_here:
            self._settle(send.turn, cause, send)

    def _write_or_sleep(self, send: Send) -> None:
        with self._mutex:
            if send.turn is None and not send.is_done and self._may_write():
                self._take_lane(Turn(), send)
            elif send.turn is not None and send.is_done:
                # It was written with others before its sender used the lane.
                self._end_turn(send.turn)
                send.turn = None
                return
        if send.turn is not None:
            self._write_group(send.turn)
            send.turn = None
        elif send.wakeup is not None:
            send.wakeup.acquire()

    def _drain(self, until: int) -> None:
        """Return once all sends up to `until` are done and, unless this is called back by one of
        them, their senders told.
        """
        turn = Turn()
        try:
            while self._wait_for(until, turn):
                self._write_group(turn)
                turn = Turn()
        except BaseException as cause:
            self._settle(turn, cause)
            raise

    def _wait_for(self, until: int, turn: Turn) -> bool:
        """Sleep until all sends up to `until` are done, or this thread is to write some."""
        with self._mutex:
            while True:
                under_way = [[self._pending.first] if self._pending else [], *self._groups]
                if all(told.teller != threading.get_ident() for told in self._told):
                    under_way += [told.ended for told in self._told]
                if not any(sends and sends[0].order <= until for sends in under_way):
                    return False
                if self._may_write():
                    self._take_lane(turn)
                    return True
                self._changed.wait()

    def _write_group(self, turn: Turn) -> None:
        """Use a lane once: gather what waits, have it written, tell how it went."""
        failure: TidemillError | Withdrawn | None = None
        try:
            reservation = self._gather(turn)
            if reservation is not None:
                self._append(turn, reservation)
        except (TidemillError, Withdrawn) as error:
            failure = error
        with self._mutex:
            self._end_turn(turn, failure)
        self._tell(turn)

    def _settle(self, turn: Turn | None, cause: BaseException, send: Send | None = None) -> None:
        """Do what an interrupt has kept this thread from doing: whoever waits must not wait for
        ever. Returns when it is done.
        """
        while True:
            try:
                if send is not None:
                    self._forget(send)
                    turn = send.turn
                self._see_out(turn, cause)
            except BaseException as again:  # noqa: BLE001
                # One more interrupt changes nothing; the first one is on its way.
                logger.debug("interrupted again, while sends are settled: %r", again)
            else:
                return

    def _forget(self, send: Send) -> None:
        """Nobody waits for a send any more. Done twice, it does no more than once."""
        send.wakeup = None  # Whatever is left of it, a worker writes.
        self.withdraw(send)
        with self._mutex:
            self._room.leave(send)
            numbered = [one for one in self._pending if one.number is not None]
            if numbered and numbered[-1] is send:  # Nobody could pass it.
                self._pending = self._pending.without([send])
            told = [turn.ended for turn in self._told]
            places: list[Iterable[Send]] = [self._pending, *self._groups, *told]
            if self._producer is not None and not any(send in place for place in places):
                self._producer.forget(send)
        if send.told_in is not None:
            send.told_in.wake_all()

    def _see_out(self, turn: Turn | None, cause: BaseException) -> None:
        """End a turn, if it has not ended. Done twice, it does no more than once."""
        failure: TidemillError | None = None
        if turn is not None and turn.group and turn in self._turns:
            failure = StorageFailed("a write was interrupted; close the publisher, open a new one")
            failure.__cause__ = cause
            self._writer.give_up(failure)
        with self._mutex:
            if turn is not None:
                self._end_turn(turn, failure)
            # Whom this thread was about to wake is not known.
            for one in self._pending:
                one.wake()
            self._hand_over()
            self._changed.notify_all()
        if turn is not None:
            self._tell(turn)
            turn.wake_all()  # Those who were told before it broke off do not wake the others.

    @property
    def _groups(self) -> list[Sequence[Send]]:
        """What is being written."""
        return [turn.group for turn in self._turns if turn is not None and turn.group]

    def _gather(self, turn: Turn) -> Reservation | None:
        """Take what waits, in order, and reserve its numbers; None for nothing."""
        with self._mutex:
            while True:
                # Marks without rows have no numbers by which a failure would show.
                is_alone = bool(self._pending) and not self._pending.first.count
                if self._groups and (self._settles or is_alone):
                    self._changed.wait()
                    continue
                self._settles = False
                wait_s = self._writer.turn_s(turn.lane) if self._pending else 0.0
                if wait_s <= 0:
                    break
                # Meanwhile the group grows.
                self._clock.wait(self._changed, wait_s)
            if not self._pending:
                return None
            group, rest = self._pending.divided(self._writer.group_bytes)
            rows, size = sum(send.count for send in group), self._pending.size - rest.size
            after = self._reserved if self._groups else None
            turn.group, turn.size, self._pending = group, size, rest
            self._written_bytes += size
            reservation = self._writer.reserve(rows, after)
            self._reserved = reservation.last
            # One without rows has the line to itself until it is done.
            self._settles = not rows
            self._hand_over()
            return reservation

    def _append(self, turn: Turn, reservation: Reservation) -> None:
        group = turn.group
        marks: dict[str, Mark] = {}
        first = reservation.first
        for send in group:
            if self._producer is not None and send.number is not None:
                mark = self._producer.mark(send, first)
                marks[mark.producer] = mark
            first += send.count
        frames = frames_of(group, self._encode)
        durability = self._writer.append(turn.lane, reservation, frames, list(marks.values()))
        first = reservation.first
        for send in group:
            send.receipt = Receipt(first, first + send.count - 1, send.count, durability)
            first += send.count
        with self._mutex:
            self._next_seq = max(self._next_seq, first)
            self._durability = durability
            if self._producer is not None:
                for mark in marks.values():
                    self._producer.confirm(mark)

    def _end_turn(self, turn: Turn, failure: TidemillError | Withdrawn | None = None) -> None:
        """Let the lane go, and note whom to tell what. Called under the lock."""
        if turn not in self._turns:
            return
        me, pending, producer = threading.get_ident(), self._pending, self._producer
        ended, error = turn.group, None
        if isinstance(failure, Withdrawn):
            # They go to the front again, but for those numbered behind one that failed.
            ended = [send for send in ended if producer is not None and producer.is_stale(send)]
            pending = pending.with_back(send for send in turn.group if send not in ended)
            error = producer.failure if producer is not None and ended else None
        elif failure is not None:
            error = failure
            if isinstance(error, _BREAKING):
                self._failure = error
                ended = [*ended, *pending]
        if error is not None:
            if any(send.number is not None for send in ended):
                # All that are numbered behind them must not pass them.
                ended = [*ended, *(send for send in pending if send.number is not None)]
                ended = list(dict.fromkeys(ended))
                if producer is not None:
                    producer.take_back(ended, error)
            pending = pending.without(ended)
        turn.failure, turn.ended, turn.teller = error, ended, me
        self._pending = pending
        self._written_bytes -= turn.size
        self._settles = self._settles or failure is not None
        self._turns[turn.lane] = None
        self._told = [*self._told, turn] if ended else self._told
        self._hand_over()
        self._changed.notify_all()

    def _tell(self, turn: Turn) -> None:
        """Tell the senders, if that is yet to be done."""
        if turn not in self._told:
            return
        turn.tell()
        with self._mutex:
            self._told = [one for one in self._told if one is not turn]
            self._changed.notify_all()

    def _hand_over(self) -> None:
        """Let somebody use a lane that is free, if anything waits. Called under the lock."""
        if not self._may_write():
            return
        send = self._pending.first
        if send.wakeup is None:
            try:
                self.call_worker(by_sender=False)
            except SurroundingsError as error:
                logger.warning("what was sent soon waits for the next send or flush: %s", error)
        elif send.turn is None:
            self._take_lane(Turn(), send)
            send.wake()

    def _take_lane(self, turn: Turn, send: Send | None = None) -> None:
        """Use a free lane; by the sender of `send`, if there is one. Called under the lock."""
        lane = self._turns.index(None)
        turn.lane = lane
        self._turns[lane] = turn
        if send is not None:
            send.turn = turn

    def _may_write(self) -> bool:
        """Whether something waits, and a lane is free that it is worth. Called under the lock."""
        free = self._turns.count(None)
        if not self._pending or not free:
            return False
        is_first = free == self._writer.lanes
        return is_first or self._pending.size >= self._writer.lane_bytes_min

    def call_worker(self, *, by_sender: bool = True) -> None:
        """Have a thread of ours write what waits, for nobody else may."""
        with self._mutex:
            workers, tellers = self._workers, {told.teller for told in self._told}
            if by_sender and threading.get_ident() in tellers:
                # Whom a worker calls back may wait there for what only another can write.
                workers = [worker for worker in workers if worker.ident not in tellers]
            if len(workers) < self._writer.lanes and not self._is_closed:
                worker = threading.Thread(target=self._work, name="tidemill-publisher", daemon=True)
                start(worker)
                self._workers.append(worker)  # which waits for the lock until it is counted
            else:
                self._changed.notify_all()

    def _work(self) -> None:
        turn = Turn()
        while self._wait_for_work(turn):
            try:
                self._write_group(turn)
            except BaseException as cause:
                # What was called back must not end the thread that others count on.
                self._settle(turn, cause)
                logger.exception("what was called back by a send raised")
            turn = Turn()

    def _wait_for_work(self, turn: Turn) -> bool:
        """Sleep until there is something to write; False if this thread is to end."""
        with self._mutex:
            is_told = True
            while not self._may_write():
                # Nobody may be left who could close this; the next send calls another.
                if self._is_closed or self._failure is not None or not is_told:
                    me = threading.current_thread()
                    self._workers = [worker for worker in self._workers if worker is not me]
                    return False
                is_told = self._changed.wait(WORKER_IDLE_S)
            self._take_lane(turn)
            return True

    def _has_room(self, send: Send) -> bool:
        return self._room.is_for(send, self._pending.size + self._written_bytes)

    def _check(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure) from self._failure
        if self.is_closing:
            raise Closed("the publisher was closed; open a new one")
