"""The one judge of "lost, duplicated, reordered, invented", for every test that breaks something.

Two strengths:

`PrefixModel`, for one thread. Operations are journaled in order, so what a recovery finds must be
the state after the first k operations, for one k between those acknowledged and those attempted.
Nothing weaker is accepted.

`history.History`, for many threads or a killed process. The order of what ran at the same time is
unknown, so it judges by items: what was acknowledged is there, or was handed out, or went with a
pop that was under way; each push and each such pop whole or not at all.

Every value is unique and carries its own number and key (`UniqueValues`), so that a value alone
tells where it came from.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

Pair: TypeAlias = tuple[int, bytes]
Recovered: TypeAlias = Mapping[str, Sequence[Pair]]

MAIN = "main"
ATTEMPTED = "attempted"
ACKNOWLEDGED = "acknowledged"


class Item(NamedTuple):
    """An item of the model; tuples of this shape sort as a queue does, by key and then by
    arrival.
    """

    key: int
    arrival: int
    value: bytes


class Violation(AssertionError):
    """A recovered state that no order of events allows."""


class UniqueValues:
    """Makes values that are never the same and tell their number and key."""

    def __init__(self, start: int = 0, *, length: int = 24) -> None:
        self._next = start
        self._length = length

    def pairs(self, keys: Iterable[int]) -> list[Pair]:
        """One pair for each key."""
        return [(key, self.value(key)) for key in keys]

    def value(self, key: int) -> bytes:
        number = self._next
        self._next += 1
        return f"#{number}:{key};".encode().ljust(self._length, b".")


def number_and_key(value: bytes) -> tuple[int, int]:
    """What `UniqueValues` wrote into a value; raises `Violation` for anything it never made."""
    try:
        number, _, key = value[1 : value.index(b";")].partition(b":")
        found = int(number), int(key)
    except ValueError:
        raise Violation(f"invented: {value!r} is no value that a test made") from None
    if UniqueValues(found[0], length=len(value)).value(found[1]) != value:
        raise Violation(f"invented: {value!r} is a damaged value")
    return found


State: TypeAlias = dict[str, tuple[Item, ...]]


class PrefixModel:
    """A dumb queue with forks that remembers its state after each operation.

    Every method that changes something is one operation and returns how many there are by then.
    Record an operation before it is tried, and acknowledge it when it returned and was promised
    to last.
    """

    def __init__(self, main: str = MAIN) -> None:
        self.main = main
        self.acknowledged = 0
        self.words: list[str] = []
        self._arrivals = 0
        self._states: list[State] = [{main: ()}]
        # What a reader sees of each state, for comparing quickly.
        self._seen: list[dict[str, list[Pair]]] = [{main: []}]

    @classmethod
    def holding(cls, contents: Recovered) -> PrefixModel:
        """A model that starts with what a queue holds already."""
        model = cls()
        # What several forks hold is the same item, with one arrival number.
        arrivals: dict[Pair, int] = {}
        for pairs in contents.values():
            for pair in pairs:
                arrivals.setdefault(pair, len(arrivals) + 1)
        model._arrivals = len(arrivals)
        model._states = [
            {
                fork: tuple(Item(key, arrivals[key, value], value) for key, value in pairs)
                for fork, pairs in contents.items()
            }
        ]
        model._seen = [{fork: list(pairs) for fork, pairs in contents.items()}]
        return model

    @property
    def attempted(self) -> int:
        return len(self.words)

    def push(self, pairs: Iterable[Pair]) -> int:
        """Every fork gets the items."""
        pairs = list(pairs)
        return self._step(f"push {len(pairs)}", self._pushed(self._states[-1], pairs))

    def pop(self, fork: str, count: int, *, key_max: int | None = None) -> int:
        """The least `count` items of a fork go, none of them above `key_max`; below 0 all go."""
        state, taken = self._popped(fork, count, key_max)
        return self._step(f"pop {len(taken)} from {fork}", state)

    def pop_and_push(self, fork: str, count: int, pairs: Iterable[Pair]) -> int:
        """A read transaction that pushes: one operation."""
        state, taken = self._popped(fork, count, None)
        pairs = list(pairs)
        words = f"pop {len(taken)} from {fork} and push {len(pairs)}"
        return self._step(words, self._pushed(state, pairs))

    def delete(self, fork: str, low: int, high: int) -> int:
        """Items of a fork with keys from `low` to `high`, both included, go."""
        items = self._states[-1][fork]
        kept = tuple(item for item in items if not low <= item.key <= high)
        return self._step(f"delete {low} to {high} of {fork}", {**self._states[-1], fork: kept})

    def fork(self, name: str, parent: str) -> int:
        """A new fork starts where its parent stands; an old one stays as it is."""
        state = self._states[-1]
        state = state if name in state else {**state, name: state[parent]}
        return self._step(f"fork {name} of {parent}", state)

    def remove(self, name: str) -> int:
        state = {fork: items for fork, items in self._states[-1].items() if fork != name}
        return self._step(f"remove {name}", state)

    def clear(self, fork: str) -> int:
        return self._step(f"clear {fork}", {**self._states[-1], fork: ()})

    def drop(self, arrivals: set[int]) -> int:
        """The items with these arrival numbers are given up, in every fork."""
        state = {
            fork: tuple(item for item in items if item.arrival not in arrivals)
            for fork, items in self._states[-1].items()
        }
        return self._step(f"drop {len(arrivals)}", state)

    def nothing(self, words: str) -> int:
        """An operation that must not change what is seen: a merge, a reclaim, a reopening."""
        return self._step(words, self._states[-1])

    def retract(self) -> None:
        """Forget the last operation: it failed, and is known to have changed nothing."""
        if self.acknowledged == self.attempted:
            raise ValueError("an acknowledged operation cannot be retracted")
        for remembered in (self.words, self._states, self._seen):
            remembered.pop()

    def acknowledge(self, count: int | None = None) -> None:
        """The first `count` operations (None: all) are promised to last."""
        self.acknowledged = self.attempted if count is None else count

    def state_after(self, count: int) -> State:
        """What each fork holds after the first `count` operations, in the order it comes out."""
        return self._states[count]

    def resumed(self, count: int) -> PrefixModel:
        """A model that starts where this one stood after `count` operations."""
        twin = PrefixModel(self.main)
        twin._arrivals = self._arrivals
        twin._states = [self._states[count]]
        twin._seen = [self._seen[count]]
        return twin

    def check(
        self, recovered: Recovered, *, acknowledged: int | None = None, attempted: int | None = None
    ) -> int:
        """How many operations survived; raises `Violation` if no number in the bounds explains
        what was found.
        """
        low = self.acknowledged if acknowledged is None else acknowledged
        high = self.attempted if attempted is None else attempted
        found = {fork: [(key, value) for key, value in pairs] for fork, pairs in recovered.items()}
        # Most crashes lose little, so the newest state is the likeliest.
        for count in range(high, low - 1, -1):
            if self._seen[count] == found:
                return count
        raise Violation(self._explanation(found, low, high))

    def _step(self, words: str, state: State) -> int:
        self.words.append(words)
        before, seen = self._states[-1], self._seen[-1]
        self._states.append(state)
        self._seen.append(
            {
                fork: seen[fork]
                if before.get(fork) is items
                else [(item.key, item.value) for item in items]
                for fork, items in state.items()
            }
        )
        return self.attempted

    def _pushed(self, state: State, pairs: Sequence[Pair]) -> State:
        # Arrival numbers are given after a stable sort by key.
        new = []
        for key, value in sorted(pairs, key=lambda pair: pair[0]):
            self._arrivals += 1
            new.append(Item(key, self._arrivals, value))
        return {fork: tuple(sorted((*items, *new))) for fork, items in state.items()}

    def _popped(self, fork: str, count: int, key_max: int | None) -> tuple[State, tuple[Item, ...]]:
        items = self._states[-1][fork]
        count = len(items) if count < 0 else min(count, len(items))
        if key_max is not None:
            count = min(count, bisect_left(items, (key_max + 1,)))
        return {**self._states[-1], fork: items[count:]}, items[:count]

    def _explanation(self, found: dict[str, list[Pair]], low: int, high: int) -> str:
        lines = [f"what was found is the state after no k operations, for {low} ≤ k ≤ {high}:"]
        lines += [f"  #{n} {words}" for n, words in enumerate(self.words[:high], 1) if n > low - 4]
        outside = [count for count, seen in enumerate(self._seen) if seen == found]
        if outside:
            lines.append(f"  it is the state after {outside} operations, outside the bounds")
        for fork in sorted({*found, *self._seen[low], *self._seen[high]}):
            lines += [f"  {words}" for words in self._about_fork(fork, found.get(fork), low, high)]
        return "\n".join(lines)

    def _about_fork(self, fork: str, found: list[Pair] | None, low: int, high: int) -> list[str]:
        allowed = [self._seen[count].get(fork) for count in range(low, high + 1)]
        if found in allowed:
            return [
                f"fork {fork}: allowed by itself, after {low + allowed.index(found)} operations"
            ]
        if found is None:
            return [f"fork {fork}: lost"]
        there = [pairs for pairs in allowed if pairs is not None]
        if not there:
            return [f"fork {fork}: back from removal, or never made"]
        always = set(there[0]).intersection(*map(set, there))
        ever = set().union(*map(set, there))
        known = {pair for seen in self._seen for pairs in seen.values() for pair in pairs}
        return [f"fork {fork}: {words}" for words in differences(found, always, ever, known)] or [
            f"fork {fork}: part of an operation: {some(found)}, allowed {some(there[-1])}"
        ]


def differences(
    found: Sequence[Pair], always: set[Pair], ever: set[Pair], known: set[Pair]
) -> list[str]:
    """What is wrong with items, given those that must be there, those that may, and all ever
    pushed.
    """
    words = []
    twice = [pair for pair, count in Counter(found).items() if count > 1]
    if twice:
        words.append(f"duplicated: {some(twice)}")
    if invented := [pair for pair in found if pair not in known]:
        words.append(f"invented: {some(invented)}")
    if back := [pair for pair in found if pair in known and pair not in ever]:
        words.append(f"handed out again: {some(back)}")
    if lost := sorted(always.difference(found)):
        words.append(f"lost: {some(lost)}")
    if not words and sorted(found, key=lambda pair: pair[0]) != list(found):
        words.append(f"reordered: {some(found)}")
    return words


def some(pairs: Sequence[object], count_max: int = 12) -> str:
    more = f" and {len(pairs) - count_max} more" if len(pairs) > count_max else ""
    return f"{list(pairs[:count_max])}{more}"


def bounds(marks: Iterable[object]) -> tuple[int, int]:
    """The (acknowledged, attempted) counts that marks of a trace tell, for `PrefixModel.check`.

    Marks have the labels ACKNOWLEDGED and ATTEMPTED and the count as their payload.
    """
    counts = {ACKNOWLEDGED: 0, ATTEMPTED: 0}
    for mark in marks:
        label, payload = getattr(mark, "label", None), getattr(mark, "payload", None)
        if label in counts and isinstance(payload, int):
            counts[label] = max(counts[label], payload)
    return counts[ACKNOWLEDGED], max(counts.values())
