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
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence

from tidemill.clock import Clock
from tidemill.errors import Closed, Fenced, OutcomeUnknown, StorageFailed, TidemillError
from tidemill.files.queue.receipt import Durability, Receipt
from tidemill.log.contract import Ends, LogFrame, LogWriter, Mark, Reservation, Withdrawn
from tidemill.log.ending import see_through_at_exit
from tidemill.log.home import Home
from tidemill.log.producer import Producer
from tidemill.log.sends import Send, tell
from tidemill.log.waiting import Waiting

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
        self._pending_bytes_max = bytes_max
        self._clock = clock
        self._next_seq = ends.next  # for the receipts of sends of nothing
        self._durability = durability
        self._home = Home("the publisher")
        self._mutex = threading.Lock()
        self._changed = threading.Condition(self._mutex)
        self._pending = Waiting()
        self._pending_bytes = 0
        self._lanes = list(range(writer.lanes))[::-1]  # those that nobody uses
        self._groups: list[list[Send]] = []  # being written
        self._told: list[list[Send]] = []  # written; their senders are being told
        self._tellers: set[int] = set()  # the threads that do so
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
                self._changed.wait()
            if self._producer is not None and self._producer.knows(send, self._durability):
                return False
            if not send.count and send.number is None:
                send.receipt = Receipt(self._next_seq, self._next_seq - 1, 0, self._durability)
                return False
            self._orders += 1
            send.order = self._orders
            self._pending.append(send)
            self._pending_bytes += send.size
            return True

    def withdraw(self, send: Send) -> bool:
        """Take a send out of the line again; False if it is being written, or is numbered: those
        behind it must not pass it.
        """
        with self._mutex:
            if send.number is not None or not self._pending.remove(send):
                return False
            self._pending_bytes -= send.size
            self._changed.notify_all()
            return True

    def call_worker(self) -> None:
        """Have a send written that nobody waits for."""
        with self._mutex:
            self._call_worker()

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
        try:
            while not send.is_done or send.lane is not None:
                self._write_or_sleep(send)
        finally:
            send.wake_next()

    def _write_or_sleep(self, send: Send) -> None:
        with self._mutex:
            lane, send.lane = send.lane, None
            if send.is_done:
                if lane is not None:  # It was written with others before its sender used the lane.
                    self._lanes.append(lane)
                    self._hand_over()
                return
            if lane is None and self._may_write():
                lane = self._lanes.pop()
        if lane is not None:
            self._write_group(lane)
        elif send.wakeup is not None:
            try:
                send.wakeup.acquire()
            except BaseException:
                self._abandon(send)
                raise

    def _abandon(self, send: Send) -> None:
        """The sender was interrupted: its send is withdrawn, unless it is being written."""
        self.withdraw(send)
        with self._mutex:
            send.wakeup = None  # Whatever is left of it, a worker writes.
            if send.lane is not None:
                self._lanes.append(send.lane)
                send.lane = None
            self._hand_over()
            self._changed.notify_all()

    def _drain(self, until: int) -> None:
        """Return once all sends up to `until` are done and, unless this is called back by one of
        them, their senders told.
        """
        while True:
            with self._mutex:
                while True:
                    under_way = [*self._groups, [self._pending.first] if self._pending else []]
                    if threading.get_ident() not in self._tellers:
                        under_way += self._told
                    if not any(group and group[0].order <= until for group in under_way):
                        return
                    if self._may_write():
                        lane = self._lanes.pop()
                        break
                    self._changed.wait()
            self._write_group(lane)

    def _write_group(self, lane: int) -> None:
        """Use a lane once: gather what waits, have it written, tell how it went."""
        group: list[Send] = []
        ended: list[Send] = []
        try:
            reservation = self._gather(lane, group)
            if reservation is not None:
                self._append(lane, group, reservation)
            ended = group
        except Withdrawn:
            with self._mutex:
                ended = self._put_back(group)
        except TidemillError as error:
            with self._mutex:
                ended = self._note_failure(group, error)
        except BaseException as error:
            # An interrupt in the middle of a write: whoever waits must not wait for ever.
            failure = StorageFailed("a write was interrupted; close the publisher, open a new one")
            failure.__cause__ = error
            with self._mutex:
                ended = self._note_failure(group, failure)
            raise
        finally:
            self._end_group(lane, group, ended)

    def _gather(self, lane: int, group: list[Send]) -> Reservation | None:
        """Fill `group` with what waits, in order, and reserve its numbers; None for nothing."""
        with self._mutex:
            while True:
                # Marks without rows have no numbers by which a failure would show.
                is_alone = bool(self._pending) and not self._pending.first.count
                if self._groups and (self._settles or is_alone):
                    self._changed.wait()
                    continue
                self._settles = False
                wait_s = self._writer.turn_s(lane) if self._pending else 0.0
                if wait_s <= 0:
                    break
                # Meanwhile the group grows.
                self._clock.wait(self._changed, wait_s)
            size = rows = 0
            while self._pending:
                send = self._pending.first
                if group and (size + send.size > self._writer.group_bytes or not send.count):
                    break
                self._pending.pop()
                size += send.size
                rows += send.count
                group.append(send)
            if not group:
                return None
            after = self._reserved if self._groups else None
            self._groups.append(group)
            reservation = self._writer.reserve(rows, after)
            self._reserved = reservation.last
            # One without rows has the line to itself until it is done.
            self._settles = not rows
            self._hand_over()
            return reservation

    def _append(self, lane: int, group: list[Send], reservation: Reservation) -> None:
        marks: dict[str, Mark] = {}
        first = reservation.first
        for send in group:
            if self._producer is not None and send.number is not None:
                mark = self._producer.mark(send, first)
                marks[mark.producer] = mark
            first += send.count
        frames = self._frames(group)
        durability = self._writer.append(lane, reservation, frames, list(marks.values()))
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

    def _frames(self, group: list[Send]) -> list[LogFrame]:
        """The rows of a group as frames; small sends that follow each other share one."""
        frames: list[LogFrame] = []
        small: list[Send] = []
        for send in group:
            if send.frames is None:
                if send.count:
                    small.append(send)
                continue
            if small:
                frames += self._encode(small)
                small = []
            frames += send.frames
        return frames + (self._encode(small) if small else [])

    def _put_back(self, group: list[Send]) -> list[Send]:
        """Sends whose numbers were withdrawn go to the front again. Returns those that fail, for
        they are numbered behind one that did. Called under the lock.
        """
        self._settles = True
        producer = self._producer
        stale = [send for send in group if producer is not None and producer.is_stale(send)]
        again = [send for send in group if send not in stale]
        self._pending.put_back(again)
        if producer is None or producer.failure is None or not stale:
            return []
        return self._fail_numbered(stale, producer.failure)

    def _note_failure(self, group: list[Send], error: TidemillError) -> list[Send]:
        """All sends that fail with a group. Called under the lock."""
        self._settles = True
        if isinstance(error, _BREAKING):
            self._failure = error
            group = [*group, *self._pending.take_all()]
        return self._fail_numbered(group, error)

    def _fail_numbered(self, failed: list[Send], error: TidemillError) -> list[Send]:
        """Let sends fail, and with a numbered one all that are numbered behind it, which must not
        pass it. Returns all of them. Called under the lock.
        """
        if any(send.number is not None for send in failed):
            failed = failed + self._pending.take_numbered()
            if self._producer is not None:
                self._producer.take_back(failed, error)
        for send in failed:
            send.failure = error
        return failed

    def _end_group(self, lane: int, group: list[Send], ended: list[Send]) -> None:
        """Let the lane go, then tell the senders."""
        me = threading.get_ident()
        with self._mutex:
            self._groups = [one for one in self._groups if one is not group]
            self._pending_bytes -= sum(send.size for send in ended)
            self._told.append(ended)
            self._lanes.append(lane)
            self._hand_over()
            self._changed.notify_all()
            was_teller = me in self._tellers
            self._tellers.add(me)
        try:
            tell(ended)
        finally:
            with self._mutex:
                self._told = [one for one in self._told if one is not ended]
                if not was_teller:
                    self._tellers.discard(me)
                self._changed.notify_all()

    def _hand_over(self) -> None:
        """Let somebody use a lane that is free, if anything waits. Called under the lock."""
        if not self._may_write():
            return
        send = self._pending.first
        if send.wakeup is None:
            self._call_worker()
        elif send.lane is None:
            send.lane = self._lanes.pop()
            send.wake()

    def _may_write(self) -> bool:
        """Whether something waits, and a lane is free that it is worth. Called under the lock."""
        if not self._pending or not self._lanes:
            return False
        is_first = len(self._lanes) == self._writer.lanes
        return is_first or self._pending.size >= self._writer.lane_bytes_min

    def _call_worker(self) -> None:
        """Have a thread of ours write what waits. Called under the lock."""
        if len(self._workers) < self._writer.lanes and not self._is_closed:
            worker = threading.Thread(target=self._work, name="tidemill-publisher", daemon=True)
            self._workers.append(worker)
            worker.start()
        else:
            self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._mutex:
                while not self._may_write():
                    if self._is_closed or self._failure is not None:
                        return
                    is_told = self._changed.wait(WORKER_IDLE_S)
                    if not is_told and not self._may_write():
                        # Nobody may be left who could close this; the next send calls another.
                        self._workers.remove(threading.current_thread())
                        return
                lane = self._lanes.pop()
            self._write_group(lane)

    def _has_room(self, send: Send) -> bool:
        total = self._pending_bytes + send.size
        return self._pending_bytes == 0 or total <= self._pending_bytes_max

    def _check(self) -> None:
        if self._failure is not None:
            raise copy.copy(self._failure) from self._failure
        if self.is_closing:
            raise Closed("the publisher was closed; open a new one")
