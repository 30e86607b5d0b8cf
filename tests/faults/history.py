"""The judge for many threads and for killed processes: by items, since the order of what ran at
the same time is unknown.

What was acknowledged is there, or was handed out, or went with a pop that was under way; each
push and each such pop is whole or not at all; what was handed out never comes again; nothing
smaller is left behind.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.faults.checker import MAIN, Pair, Recovered, Violation, differences, some


@dataclass(slots=True)
class _Push:
    pairs: list[Pair]
    # When it was acknowledged, in the history's own time.
    acknowledged: int | None = None


@dataclass(slots=True)
class _Pop:
    fork: str
    count: int
    attempted: int
    # None until it is known what came out.
    pairs: list[Pair] | None = None


@dataclass(slots=True)
class History:
    """What many threads, or a process that was killed, attempted and were told.

    Record under a lock. Forks are given up front and are older than every push. Deletes, clears
    and removals are for `PrefixModel`.
    """

    forks: Sequence[str] = (MAIN,)
    pushes: list[_Push] = field(default_factory=list)
    pops: list[_Pop] = field(default_factory=list)
    _now: int = 0

    def push_attempted(self, pairs: Iterable[Pair]) -> int:
        """Record a push before it is tried; the number returned acknowledges it."""
        self.pushes.append(_Push(list(pairs)))
        return len(self.pushes) - 1

    def push_acknowledged(self, number: int) -> None:
        self._now += 1
        self.pushes[number].acknowledged = self._now

    def pop_attempted(self, count: int, fork: str = MAIN) -> int:
        """Record a pop before it is tried; the number returned acknowledges it."""
        self._now += 1
        self.pops.append(_Pop(fork, count, self._now))
        return len(self.pops) - 1

    def pop_acknowledged(self, number: int, pairs: Iterable[Pair]) -> None:
        self.pops[number].pairs = list(pairs)

    def check(self, recovered: Recovered) -> None:
        """Raise `Violation` unless what each fork still hands out fits what was attempted and
        told.
        """
        problems: list[str] = []
        for fork in sorted({*self.forks, *recovered}):
            if fork not in recovered:
                problems.append(f"fork {fork}: lost")
            elif fork not in self.forks:
                problems.append(f"fork {fork}: invented")
            else:
                found = [(key, value) for key, value in recovered[fork]]
                problems += [f"fork {fork}: {words}" for words in self._problems(fork, found)]
        problems += self._in_some_forks_only(recovered)
        if problems:
            raise Violation("\n".join(problems))

    def _problems(self, fork: str, found: list[Pair]) -> list[str]:
        told = [pop for pop in self.pops if pop.fork == fork and pop.pairs is not None]
        under_way = [pop for pop in self.pops if pop.fork == fork and pop.pairs is None]
        popped = [pair for pop in told for pair in pop.pairs or ()]
        known = {pair for push in self.pushes for pair in push.pairs}
        kept = {pair for push in self.pushes if push.acknowledged for pair in push.pairs}
        words = []
        if twice := [pair for pair, count in Counter(popped).items() if count > 1]:
            words.append(f"duplicated: popped twice: {some(twice)}")
        if made_up := [pair for pair in popped if pair not in known]:
            words.append(f"invented: popped but never pushed: {some(made_up)}")
        # What is missing may have gone with a pop that never got to tell.
        always = set() if under_way else kept.difference(popped)
        words += differences(found, always, known.difference(popped), known)
        if under_way:
            gone = sorted(kept.difference(found, popped))
            words += self._not_taken_by(under_way, gone, found, popped)
        else:
            words += self._pushes_in_part({*found, *popped})
        for pop in told:
            if (keys := [key for key, _ in pop.pairs or ()]) != sorted(keys):
                words.append(f"reordered: a pop gave {some(pop.pairs or [])}")
        words += self._left_behind(told, found)
        words += self._not_first_in_first_out(found)
        return words

    def _not_taken_by(
        self, under_way: list[_Pop], gone: list[Pair], found: list[Pair], popped: list[Pair]
    ) -> list[str]:
        """Why pops under way cannot have taken it: too many, too few, or not the least."""
        if not gone:
            return []
        counts = [pop.count if pop.count >= 0 else len(gone) for pop in under_way]
        if len(gone) > sum(counts):
            return [f"lost: more than the pops under way ask for: {some(gone)}"]
        # Each pop took all it asked for or nothing, unless it emptied the queue; items of pushes
        # that never returned may have filled it up.
        there = {*found, *popped}
        unsure = [push.pairs for push in self.pushes if not push.acknowledged]
        spare = sum(pair not in there for pairs in unsure for pair in pairs)
        sums = {0}
        for count in counts:
            sums |= {total + count for total in sums}
        if found and not any(len(gone) <= total <= len(gone) + spare for total in sums):
            return [f"part of a pop: {some(gone)} gone, pops under way ask for {counts}"]
        low = self._least_since_before(min(pop.attempted for pop in under_way), found)
        if low is not None and gone[-1][0] > low:
            return [f"lost: {gone[-1]} gone with a pop, but the smaller key {low} is left"]
        return []

    def _left_behind(self, told: list[_Pop], found: list[Pair]) -> list[str]:
        """A pop that gave a key while a smaller one was there, which is there still."""
        words = []
        place = set(found)
        kept = sorted(
            (push.acknowledged, min(key for key, _ in left))
            for push in self.pushes
            if push.acknowledged and (left := [pair for pair in push.pairs if pair in place])
        )
        times = [time for time, _ in kept]
        least: list[int] = []
        for _, key in kept:
            least.append(min(key, least[-1]) if least else key)
        for pop in told:
            before = bisect_left(times, pop.attempted)
            if before and pop.pairs and least[before - 1] < pop.pairs[-1][0]:
                words.append(f"reordered: {pop.pairs[-1]} popped before key {least[before - 1]}")
        return words

    def _least_since_before(self, time: int, found: list[Pair]) -> int | None:
        """The least key still there of what was acknowledged before a time."""
        old = [push for push in self.pushes if push.acknowledged and push.acknowledged < time]
        place = set(found)
        keys = [pair[0] for push in old for pair in push.pairs if pair in place]
        return min(keys, default=None)

    def _pushes_in_part(self, there: set[Pair]) -> list[str]:
        words = []
        for push in self.pushes:
            missing = [pair for pair in push.pairs if pair not in there]
            if 0 < len(missing) < len(push.pairs) and not push.acknowledged:
                words.append(f"part of a push: {some(missing)} of {len(push.pairs)} are missing")
        return words

    def _not_first_in_first_out(self, found: list[Pair]) -> list[str]:
        """Equal keys of one push stay in its order; those of different threads have none."""
        place = {pair: at for at, pair in enumerate(found)}
        words = []
        for push in self.pushes:
            at_key: dict[int, int] = {}
            for pair in push.pairs:
                at = place.get(pair)
                if at is not None:
                    if at < at_key.get(pair[0], -1):
                        words.append(f"reordered: {pair} before an earlier one of its push")
                    at_key[pair[0]] = at
        return words

    def _in_some_forks_only(self, recovered: Recovered) -> list[str]:
        """A push that did not return is in every fork or in none; a pop under way hides which."""
        blurred = {pop.fork for pop in self.pops if pop.pairs is None}
        there = {
            fork: {
                *recovered.get(fork, ()),
                *(pair for pop in self.pops if pop.fork == fork for pair in pop.pairs or ()),
            }
            for fork in self.forks
            if fork not in blurred
        }
        words = []
        for number, push in enumerate(self.pushes):
            states = {
                fork: any(pair in pairs for pair in push.pairs) for fork, pairs in there.items()
            }
            if not push.acknowledged and len(set(states.values())) > 1:
                words.append(f"part of a push: push {number} is in some forks only: {states}")
        return words
