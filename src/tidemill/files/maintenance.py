"""What a queue does on the side: seals get their summaries, and disk comes back.

When it is due, one round removes dead segments, then rewrites at most a few others:

    tiny      many small frames, which cost memory and time to read one by one
    garbage   the journal is more than twice what is alive, plus three segments
    cuts      a fork has too many cuts, which only apply to old frames

Which segments are rewritten is a pure decision; `carry` does it. Rounds run in a thread of the queue, or at once
in tests that enumerate crashes.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from tidemill.errors import Closed, Corrupt, TidemillError
from tidemill.files.carry import carry, retire_dead
from tidemill.files.folder import Folder
from tidemill.limits import CUTS_PER_FORK_MAX, TINY_FRAME_BYTES, TINY_FRAMES_MIN

logger = logging.getLogger(__name__)

_REWRITES_PER_ROUND = 2


class SegmentFacts(NamedTuple):
    """What the decision looks at."""

    number: int
    data_bytes: int
    frames: int
    buckets: int
    alive: float  # the part of its items that some fork may need, by whole frames


def choose_rewrites(
    segments: list[SegmentFacts],
    *,
    total_bytes: int,
    live_bytes: int,
    segment_bytes: int,
    cuts_most: int,
) -> list[int]:
    """The sealed segments to rewrite now, by number."""
    tiny = [
        facts.number
        for facts in segments
        if facts.frames >= max(TINY_FRAMES_MIN, 4 * facts.buckets)
        and facts.data_bytes < TINY_FRAME_BYTES * facts.frames
    ]
    chosen = tiny[:_REWRITES_PER_ROUND]
    rest = [facts for facts in segments if facts.number not in chosen]
    if rest and cuts_most > CUTS_PER_FORK_MAX:
        chosen.append(rest.pop(0).number)
    if rest and total_bytes > 2 * live_bytes + 3 * segment_bytes:
        chosen.append(min(rest, key=lambda facts: (round(facts.alive, 1), facts.number)).number)
    return chosen[:_REWRITES_PER_ROUND]


class Maintenance:
    """Runs rounds when they are due."""

    def __init__(self, folder: Folder, *, in_background: bool) -> None:
        self._folder = folder
        self._in_background = in_background
        self._round_lock = threading.Lock()
        self._wakeup = threading.Event()
        self._thread: threading.Thread | None = None
        self._seen_active = folder.journal.active.number
        self._rows_until_due = 0
        self._stuck: set[int] = set()  # segments with damage: left as they are
        self._is_stopped = False

    def after_push(self) -> None:
        """Called after every push; a round is due when a segment was sealed."""
        if self._folder.journal.active.number != self._seen_active:
            self._due()

    def after_take(self, rows: int, left: int) -> None:
        """Called after items were consumed; a round is due when a segment's worth of them was, or all."""
        self._rows_until_due -= rows
        if self._folder.journal.active.number != self._seen_active or (
            len(self._folder.journal.segments) > 1 and (not left or self._rows_until_due <= 0)
        ):
            self._due()

    def run_round(self) -> None:
        """Do now what is due."""
        with self._round_lock:
            folder = self._folder
            self._seen_active = folder.journal.active.number
            folder.journal.finish_seals()
            facts = self._retire_dead()
            self._rows_until_due = self._rows_per_segment()
            for number in self._choose(facts):
                try:
                    carry(folder, number)
                except Corrupt as damage:
                    # A pop will meet the damage and deal with it; until then the segment stays.
                    logger.error("segment %d cannot be rewritten: %s", number, damage)
                    self._stuck.add(number)

    def stop(self) -> None:
        """End the thread after the round it is in."""
        self._is_stopped = True
        self._wakeup.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _due(self) -> None:
        if not self._in_background:
            self.run_round()
            return
        self._seen_active = self._folder.journal.active.number
        self._rows_until_due = self._rows_per_segment()
        with self._folder.guard:
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(
                    target=self._work, name=f"tidemill {self._folder.path}", daemon=True
                )
                self._thread.start()
        self._wakeup.set()

    def _work(self) -> None:
        while True:
            self._wakeup.wait()
            self._wakeup.clear()
            if self._is_stopped:
                return
            try:
                self.run_round()
            except Closed:
                return
            except TidemillError as error:
                logger.error("maintenance of %s failed: %s", self._folder.path, error)
                if self._folder.journal.failure is not None:
                    return

    def _retire_dead(self) -> list[SegmentFacts]:
        """Remove the segments that no fork needs; returns what is known of the others."""
        folder = self._folder
        dead: list[int] = []
        alive: list[SegmentFacts] = []
        with folder.guard:
            cursors = list(folder.cursors.values())
            for number, segment in list(folder.journal.segments.items())[:-1]:
                frames = folder.index.frames_of_segment(number)
                most = max(int(cursor.live_frames(frames).rows["rows"].sum()) for cursor in cursors)
                if not most:
                    dead.append(number)
                    continue
                buckets = 0 if segment.directory is None else len(segment.directory)
                items = int(frames.rows["rows"].sum())
                alive.append(SegmentFacts(number, segment.end, len(frames), buckets, most / items))
        if dead:
            retire_dead(folder, dead)
        return alive

    def _choose(self, facts: list[SegmentFacts]) -> list[int]:
        folder = self._folder
        with folder.guard:
            forks = list(folder.state.forks.values())
            items = sum(
                int(folder.index.frames_of_segment(one.number).rows["rows"].sum()) for one in facts
            )
            item_bytes = sum(one.data_bytes for one in facts) / items if items else 0.0
            live_bytes = int(item_bytes * sum(fork.live for fork in forks))
            total_bytes = folder.journal.bytes
            cuts_most = max(len(fork.cuts) for fork in forks)
        return choose_rewrites(
            [one for one in facts if one.number not in self._stuck],
            total_bytes=total_bytes,
            live_bytes=live_bytes,
            segment_bytes=folder.journal.segment_bytes,
            cuts_most=cuts_most,
        )

    def _rows_per_segment(self) -> int:
        folder = self._folder
        return max(folder.state.next_seq // len(folder.journal.segments) // 4, 1)
