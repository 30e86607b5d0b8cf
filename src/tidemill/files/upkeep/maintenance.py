"""What a queue does on the side: seals get their summaries, and disk comes back.

When it is due, one round removes dead segments, then rewrites others, as long as that pays:

    tiny      many small frames, which cost memory and time to read one by one
    small     several segments of about one size, which are better one
    garbage   the journal is more than twice what is alive, plus three segments
    cuts      a fork has too many cuts, which only apply to old frames

Which segments are rewritten is a pure decision; `carry` does it. Rounds run in a thread of the
queue, or at once in tests that enumerate crashes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NamedTuple

from tidemill.errors import Closed, Corrupt, DiskFull, TidemillError
from tidemill.event import Event
from tidemill.files.disk.storage import storage_errors
from tidemill.files.folder.folder import Folder
from tidemill.files.format.record import make_place
from tidemill.files.sharing.pin import try_sweep_readers
from tidemill.files.sharing.pointers import least_pointer
from tidemill.files.upkeep.carry import carry, drop, retire_dead
from tidemill.files.upkeep.segment_facts import FactFinder, SegmentFacts
from tidemill.limits import CARRY_SEGMENT_BYTES, CUTS_PER_FORK_MAX

logger = logging.getLogger(__name__)

_REWRITES_PER_ROUND = 2
_SMALL_MAX = 8  # small segments that are made one at a time
_BEHIND_MAX = 4  # segments of tiny frames that wait, before pushes wait for upkeep
_GIVE_WAY_S = 0.01  # ... at most so long each
_ALIVE_AT_THE_END = 4  # segments, after which no dead ones are looked for when a queue is closed
_CUT_BYTES = 128  # about what one cut takes in the state that opens a segment


class Rewrite(NamedTuple):
    """Sealed segments to be rewritten together."""

    segments: list[int]
    apart: bool  # whether what is left of them is to have a segment of its own


def choose_rewrites(
    segments: list[SegmentFacts],
    *,
    total_bytes: int,
    live_bytes: int,
    segment_bytes: int,
    too_many_cuts: bool,
) -> list[Rewrite]:
    """What to rewrite now."""
    merged_bytes = min(segment_bytes, CARRY_SEGMENT_BYTES)
    chosen = [
        Rewrite([facts.number for facts in group], apart=True)
        for group in (_tiny(segments, merged_bytes), _small(segments, merged_bytes))
        if group
    ]
    taken = {number for rewrite in chosen for number in rewrite.segments}
    rest = [facts for facts in segments if facts.number not in taken]
    if rest and too_many_cuts:
        chosen.append(Rewrite([rest.pop(0).number], apart=False))
    if rest and total_bytes > 2 * live_bytes + 3 * segment_bytes:
        emptiest = min(rest, key=lambda one: (round(one.alive / one.items, 1), one.number))
        chosen.append(Rewrite([emptiest.number], apart=False))
    return chosen[:_REWRITES_PER_ROUND]


def _tiny(segments: list[SegmentFacts], merged_bytes: int) -> list[SegmentFacts]:
    """The oldest segments of tiny frames, as many as make one."""
    group: list[SegmentFacts] = []
    for facts in segments:
        if facts.is_tiny:
            group.append(facts)
            if sum(one.data_bytes for one in group) > merged_bytes:
                return group[:-1] or group
    return group


def _small(segments: list[SegmentFacts], merged_bytes: int) -> list[SegmentFacts]:
    """Small segments of about one size, as many as make a larger one: so a row is rewritten once
    for each size that it passes through, and there are few segments.
    """
    limit, count = merged_bytes // 2, 2
    while limit:
        least = limit // 2 if count < _SMALL_MAX else limit // _SMALL_MAX
        group = [one for one in segments if least < one.data_bytes <= limit and not one.is_tiny]
        if len(group) >= count:
            return group[:count]
        limit, count = least, min(2 * count, _SMALL_MAX)
    return []


class Maintenance:
    """Runs rounds when they are due."""

    def __init__(self, folder: Folder, *, in_background: bool) -> None:
        self._folder = folder
        self._facts = FactFinder(folder)
        self._in_background = in_background
        self._round_lock = threading.Lock()
        # Not an event: a queue may be collected in the middle of any call, also of one of this.
        self._wakeups: SimpleQueue[None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._seen_active = folder.journal.active.number
        self._rows_per_round = 0
        self._rows_until_due = 0
        self._drained_at: dict[int, int] = {}  # fork → active segment when it had consumed all
        self._stuck: set[int] = set()  # segments with damage: left as they are
        self._set_aside = 0  # records that were when they got stuck
        self._keeps_up = Event()  # unset: more tiny frames come than are merged
        self._keeps_up.set()
        self._tiny_since_choice = 0  # segments of tiny frames, sealed since upkeep last chose
        self._is_stopped = False
        self._is_abandoned = False

    def after_push(self) -> None:
        """Called after every push; a round is due when a segment was sealed."""
        if self._folder.journal.active.number != self._seen_active:
            self._watch_pace(self._seen_active)
            self._due()
        if not self._keeps_up.is_set():
            # Upkeep lets everyone else in first. Were it never to catch up, a pop would have to
            # read ever more frames; but it may be waiting for a read of this very thread.
            self._keeps_up.wait(_GIVE_WAY_S)

    def after_take(self, fork: int, rows: int, left: int) -> None:
        """Called after items were consumed; a round is due when a segment's worth of them was, or
        when a fork has consumed all: once for each segment, for another fork may hold the rest.
        """
        journal = self._folder.journal
        self._rows_until_due -= rows
        active = journal.active.number
        if active == self._seen_active and (
            len(journal.segments) == 1 or (left and self._rows_until_due > 0)
        ):
            return  # As after nearly every pop.
        is_drained = not left and self._drained_at.get(fork) != active
        if is_drained or active != self._seen_active or self._rows_until_due <= 0:
            if is_drained:
                self._drained_at[fork] = active
            self._due()

    def after_ack(self, items: int) -> None:
        """Called after a consumer has moved on; what only it held back can go."""
        self._rows_until_due -= items
        if len(self._folder.journal.segments) > 1 and self._rows_until_due <= 0:
            self._due()

    def after_remove(self, fork: int) -> None:
        """Called after a fork is gone; what only it needed can go as well."""
        self._drained_at.pop(fork, None)
        if len(self._folder.journal.segments) > 1:
            self._due()

    def run_round(self) -> None:
        """Do now what is due."""
        with self._round_lock:
            if self._is_stopped:
                return
            folder = self._folder
            self._seen_active = folder.journal.active.number
            # Dead segments first: on a full disk they are the room that the rest needs.
            facts = self._retire_dead()
            folder.journal.finish_seals()
            chosen = self._choose(facts)
            while chosen and not self._is_stopped:
                before = self._used_bytes()
                for rewrite in chosen:
                    self._carry(rewrite)
                facts = self._retire_dead()
                folder.journal.finish_seals()
                # On as long as it pays: what is alive is an estimate, and cuts go with time alone.
                # What is tiny or small grows, and that comes to an end.
                grows = any(rewrite.apart for rewrite in chosen)
                saved = before - self._used_bytes()
                pays = grows or saved > folder.journal.segment_bytes // 8
                chosen = self._choose(facts, cuts_matter=False) if pays else []
            self._forget_gone()
            try_sweep_readers(folder.fs, folder.path)
            self._rows_per_round = self._rows_until_due = _rows_per_round(facts)

    def _carry(self, rewrite: Rewrite) -> None:
        try:
            carry(self._folder, *rewrite.segments, apart=rewrite.apart)
        except Corrupt as damage:
            # A pop will meet the damage and deal with it; until then the segments stay.
            self._set_aside = len(self._folder.state.quarantined)
            logger.error("segments %s cannot be rewritten: %s", rewrite.segments, damage)
            self._stuck.update(rewrite.segments)

    def _used_bytes(self) -> int:
        return sum(segment.end for segment in list(self._folder.journal.segments.values()))

    def drop_oldest(self) -> bool:
        """Give up what is left in the oldest segment; False if none is sealed."""
        with self._round_lock:
            segments = sorted(self._folder.journal.segments)
            if self._is_stopped or len(segments) < 2:
                return False
            drop(self._folder, segments[0])
            return True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No round runs while the block does."""
        with self._round_lock:
            yield

    def abandon(self) -> None:
        """Let go of the folder: at once, or after the round that the thread is in."""
        self._is_abandoned = True
        self._end()
        if self._round_lock.acquire(blocking=False):
            try:
                self._folder.let_go()
            finally:
                self._round_lock.release()

    def stop(self) -> None:
        """End the thread after the round it is in; no round follows. But what is dead goes: where a
        queue is only ever open for moments, no round may come to that.
        """
        self._end()
        thread = self._thread
        is_running = thread is not None and thread.ident is not None
        if thread is not None and is_running and thread is not threading.current_thread():
            thread.join()
        with self._round_lock:
            folder = self._folder
            if not folder.is_closed and folder.journal.failure is None:
                self._tolerating(lambda: self._retire_dead(alive_max=_ALIVE_AT_THE_END))

    def _end(self) -> None:
        self._is_stopped = True
        self._wakeups.put(None)

    def _watch_pace(self, sealed: int) -> None:
        """Have pushes wait if many segments of tiny frames were sealed while upkeep was at others:
        letting everyone in first may take it long, and what waits for it takes memory.
        """
        segment = self._folder.journal.segments.get(sealed)
        if segment is None or segment.directory is None:
            return
        # Not by the entries, which may have to be read: the push that asks is written by now.
        frames, buckets = int(segment.directory["frames"].sum()), len(segment.directory)
        if SegmentFacts(sealed, segment.end, frames, parts=buckets, items=0, alive=0).is_tiny:
            self._tiny_since_choice += 1
            if self._tiny_since_choice > _BEHIND_MAX:
                self._keeps_up.clear()

    def _due(self) -> None:
        if not self._in_background:
            self._try_round()
            return
        self._seen_active = self._folder.journal.active.number
        self._rows_until_due = self._rows_per_round
        with self._folder.guard:
            # One that never got an ident was to be started when an interrupt came.
            is_there = self._thread is not None and self._thread.ident is not None
            if not is_there and not self._is_stopped:
                name = f"tidemill {self._folder.path}"
                self._thread = threading.Thread(target=self._work, name=name, daemon=True)
                try:
                    self._thread.start()
                except RuntimeError as error:
                    # The system has none to spare. The next time it is due, it may have.
                    self._thread = None
                    logger.error("maintenance of %s waits: %s", self._folder.path, error)
                    return
        if self._wakeups.empty():
            self._wakeups.put(None)

    def _work(self) -> None:
        while not self._is_stopped:
            self._wakeups.get()
            if self._is_stopped or not self._try_round():
                break
        # For another, should an interrupt have led to two.
        self._wakeups.put(None)
        if self._is_abandoned:
            self._folder.let_go()

    def _try_round(self) -> bool:
        """Run a round; False if there will be no others."""
        try:
            return self._tolerating(self.run_round)
        finally:
            # What it did not do now, waiting for it does not bring about.
            self._keeps_up.set()

    def _tolerating(self, work: Callable[[], object]) -> bool:
        """Do a part of upkeep; False if no other can follow. The call that made it due has
        succeeded by now, and must not fail over it: its items were handed out, or are safe.
        """
        try:
            work()
        except Closed:
            return False
        except TidemillError as error:
            logger.error("maintenance of %s failed: %s", self._folder.path, error)
            if isinstance(error, DiskFull):
                self._give_spare_back()
            return self._folder.journal.failure is None
        # Too little memory, for instance. Who asked for it would lose what it popped.
        except Exception:
            logger.exception("maintenance of %s failed", self._folder.path)
            return self._folder.journal.failure is None
        return True

    def _give_spare_back(self) -> None:
        """Let the next round have the room that the next segment would have used."""
        journal = self._folder.journal
        try:
            journal.spare.drop()
        except OSError as error:
            logger.error("the spare file of %s stays: %s", journal.folder, error)

    def _retire_dead(self, alive_max: int | None = None) -> list[SegmentFacts]:
        """Remove the segments that neither a fork nor a consumer needs; returns what is known of
        the others. The oldest come first, and once so many are needed, the rest is not looked at.
        """
        folder = self._folder
        acked = self._acked()
        dead: list[int] = []
        alive: list[SegmentFacts] = []
        for segment in list(folder.journal.segments.values())[:-1]:
            if len(alive) == alive_max:
                break
            facts = self._facts.of(segment, acked)
            if facts.alive:
                alive.append(facts)
            else:
                dead.append(segment.number)
        if dead:
            # Looked at again, for a consumer that began meanwhile: see `pointers`.
            acked = self._acked()
            with folder.guard:
                dead = [number for number in dead if folder.index.last_seq(number) <= acked]
        if dead:
            retire_dead(folder, dead)
        return alive

    def _forget_gone(self) -> None:
        """Drop from the state what served only frames that are gone, or every fork that was ever
        made would leave something in it.
        """
        folder = self._folder
        self._facts.forget_gone()
        if folder.holds.is_anyone_left:
            return  # Whoever reads frames that are gone has to know as well whom they are for.
        with folder.guard:
            oldest = make_place(min(list(folder.journal.segments)), 0)
            # Most queues have none, and then nobody need wait until all frames are looked at.
            audiences = self._facts.audiences() if folder.state.audiences else set()
            folder.state.forget_gone(oldest, audiences)

    def _acked(self) -> int:
        """Up to which seq all consumers are done."""
        with storage_errors("reading the consumers of", self._folder.path):
            return least_pointer(self._folder.fs, self._folder.path)

    def _choose(self, facts: list[SegmentFacts], *, cuts_matter: bool = True) -> list[Rewrite]:
        folder = self._folder
        if self._set_aside != len(folder.state.quarantined):
            self._stuck.clear()
        facts = [one for one in facts if one.number not in self._stuck]
        self._tiny_since_choice = 0
        if sum(one.is_tiny for one in facts) > _BEHIND_MAX:
            self._keeps_up.clear()
        else:
            self._keeps_up.set()
        acked = self._acked()
        with folder.guard:
            forks = list(folder.state.forks.values())
            unread = max(folder.state.arrived - acked, 0)
            items = sum(one.items for one in facts)
            item_bytes = sum(one.data_bytes for one in facts) / items if items else 0.0
            live_bytes = int(item_bytes * (unread + sum(fork.live for fork in forks)))
            total_bytes = folder.journal.bytes
            cuts = [len(fork.cuts) for fork in forks]
            # Every segment opens with the cuts of all forks, twice; they should not fill it.
            spare = sum(cuts) - len(cuts)  # one for each fork cannot be helped
            is_crowded = spare * _CUT_BYTES > folder.journal.segment_bytes // 4
            too_many_cuts = cuts_matter and (max(cuts) > CUTS_PER_FORK_MAX or is_crowded)
        return choose_rewrites(
            facts,
            total_bytes=total_bytes,
            live_bytes=live_bytes,
            segment_bytes=folder.journal.segment_bytes,
            too_many_cuts=too_many_cuts,
        )


def _rows_per_round(facts: list[SegmentFacts]) -> int:
    """After how many consumed items it is worth another look: half of what a segment holds."""
    if not facts:
        return 0
    return max(sum(one.items for one in facts) // len(facts) // 2, 1)
