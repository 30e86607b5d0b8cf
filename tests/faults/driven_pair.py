"""Two queues on one disk, one shoveled into the other, for tests that break the disk under them.

The law that `judge` holds every outcome against: what is left at the source is the end of what was
to be moved, what arrived is its beginning, in every fork of the destination, and the two overlap or
touch. So nothing is in neither queue, and only what was being moved can be in both. Everything else
in both queues is as it was.
"""

from __future__ import annotations

from bisect import insort_right
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from tests.faults.checker import MAIN, Pair, UniqueValues, Violation
from tests.faults.driven_queue import BOOT, contents, digest, end_of, open_queue, use
from tests.faults.fingerprint import fingerprint
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Trace
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.queue.priority_queue import PriorityQueue

SOURCE = Path("/queues/source")
TARGET = Path("/queues/target")
SHOVELED = "shoveled"

Contents = dict[str, list[Pair]]


class Modes(NamedTuple):
    """The sync modes of the two queues."""

    source: SyncMode = "full"
    target: SyncMode = "full"

    @property
    def is_careless(self) -> bool:
        """Whether a power cut may lose what was moved: neither queue asks for any sync."""
        return self == ("none", "none")


FULL = Modes()


class DrivenPair:
    """A source with items, a destination, and what is known of both."""

    def __init__(
        self,
        fill: Callable[[PriorityQueue, PriorityQueue, UniqueValues], None],
        *,
        end: str = MAIN,  # the fork of the source that is shoveled
        modes: Modes = FULL,
    ) -> None:
        self.fs = MemoryFileSystem()
        self.end = end
        self.modes = modes
        self._values = UniqueValues()
        self._used: set[bytes] = set()
        self._read: dict[tuple[bytes, bytes], tuple[Contents, Contents]] = {}
        self.source, self.target = open_pair(self.fs, modes)
        fill(self.source, self.target, self._values)
        self.source.sync()
        self.target.sync()
        self.fs.trace = Trace(self.fs.image())
        self.source_before = contents(self.source)
        self.target_before = contents(self.target)
        self.extra = self._values.pairs([33])[0]

    @property
    def moving(self) -> list[Pair]:
        return self.source_before[self.end]

    def shovel(self) -> None:
        """Shovel, promise it, and use both queues once more."""
        moved = end_of(self.source, self.end).shovel(self.target)
        assert moved == len(self.moving)
        self.fs.mark(SHOVELED)
        self.source.push([self.extra])
        self.target.push([self.extra])

    def judge(self, fs: MemoryFileSystem, marks: Iterable[object], *, power_cut: bool) -> int:
        """How many items are in both queues; raises `Violation` if the law is broken."""
        is_done = any(getattr(mark, "label", None) == SHOVELED for mark in marks)
        fs.boot = BOOT
        source, target = open_pair(fs, self.modes)
        recovered = digest(fs.image())
        state = recovered, fingerprint((source, target))
        if state not in self._read:
            self._read[state] = contents(source), contents(target)
        left, there = self._read[state]
        doubled = self._check(left, there, is_done=is_done, power_cut=power_cut)
        fs.die()
        # What follows depends on the recovered disk alone, and many crashes lead to the same.
        if recovered not in self._used:
            self._used.add(recovered)
            source, target = open_pair(fs, self.modes)
            if (contents(source), contents(target)) != (left, there):
                raise Violation("opened twice the queues are something else")
            self._go_on(source, target, left, there)
        return doubled

    def _check(self, left: Contents, there: Contents, *, is_done: bool, power_cut: bool) -> int:
        moving = self.moving
        if left.keys() != self.source_before.keys() or there.keys() != self.target_before.keys():
            raise Violation(f"other forks: {[*left]}, {[*there]}")
        for fork in left.keys() - {self.end}:
            if _without(left[fork], self.extra) != self.source_before[fork]:
                raise Violation(f"fork {fork} of the source was touched: {left[fork]}")
        rest = _without(left[self.end], self.extra)
        if rest != moving[len(moving) - len(rest) :]:
            raise Violation(f"the source has left {rest}, not an end of {moving}")
        arrived = 0
        for fork, before in self.target_before.items():
            pairs = _without(there[fork], self.extra)
            arrived = len(pairs) - len(before)
            expected = list(before)
            for pair in moving[: max(arrived, 0)]:
                insort_right(expected, pair, key=lambda one: one[0])
            if pairs != expected:
                raise Violation(f"fork {fork} has {pairs} instead of {expected}")
        doubled = len(rest) + arrived - len(moving)
        if doubled < 0 and not (power_cut and self.modes.is_careless):
            raise Violation(f"{-doubled} items are in neither queue")
        takes_last = self.modes.source in ("index", "full")
        if is_done and takes_last and rest:
            raise Violation(f"the shovel returned, but the source has {len(rest)} items left")
        return max(doubled, 0)

    def _go_on(
        self, source: PriorityQueue, target: PriorityQueue, left: Contents, there: Contents
    ) -> None:
        """Shovel again what is left, and use both queues."""
        moved = end_of(source, self.end).shovel(target)
        if moved != len(left[self.end]):
            raise Violation(f"moved {moved} items of {len(left[self.end])}")
        there = {fork: list(pairs) for fork, pairs in there.items()}
        for pairs in there.values():
            for pair in left[self.end]:
                insort_right(pairs, pair, key=lambda one: one[0])
        left = {**left, self.end: []}
        for queue, expected in ((source, left), (target, there)):
            if contents(queue) != expected:
                raise Violation(f"shoveled again, {queue} holds {contents(queue)}")
            use(queue, expected)
            queue.close()


def open_pair(fs: FileSystem, modes: Modes = FULL) -> tuple[PriorityQueue, PriorityQueue]:
    return (
        open_queue(fs, path=SOURCE, sync=modes.source),
        open_queue(fs, path=TARGET, sync=modes.target),
    )


def _without(pairs: list[Pair], extra: Pair) -> list[Pair]:
    return [pair for pair in pairs if pair != extra]
