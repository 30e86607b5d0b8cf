"""What clients of a ring did and were told, and whether a bounded queue can behave like that.

Works on histories from anywhere: the simulator, or processes on a real store. Values are unique.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias


class Result(Enum):
    """How a call ended, if not with an offset or with entries."""

    PENDING = "never came back"  # it may have happened, also later
    UNKNOWN = "outcome unknown"  # the same, but the caller was told so
    NOTHING = "failed, and did nothing"
    FULL = "full"


Entries: TypeAlias = tuple[tuple[int, Any], ...]


@dataclass(slots=True)
class Called:
    """One call: when it began and ended, and what came of it."""

    client: str
    kind: str  # "enqueue", "dequeue" or "get"
    began: int
    values: tuple[Any, ...] = ()  # enqueued
    overwrite: bool = False
    group: str = "default"
    count: int = 1  # asked for by a dequeue
    offset: int = 0  # asked for by a get
    ended: int | None = None
    result: int | Entries | Result = Result.PENDING

    @property
    def may_have_happened(self) -> bool:
        """Whether it is in doubt."""
        return self.result in (Result.PENDING, Result.UNKNOWN)


class Wrong(AssertionError):
    """No bounded queue does this."""


@dataclass(slots=True)
class History:
    """All calls on one ring, from its making on, when it was empty."""

    capacity: int
    groups: tuple[str, ...] = ("default",)
    calls: list[Called] = field(default_factory=list)


def check(history: History, left: Entries | None = None) -> None:
    """Find entries that were lost, doubled, reordered or invented; quick, also for long histories.

    `left` is what a reader finds at the end, when nothing is under way: everything that the slowest
    group has not taken.
    """
    enqueued = _check_enqueues(history)
    for group in history.groups:
        _check_group(history, group, enqueued)
    _check_real_time(history)
    _check_answers(history, enqueued)
    if left is not None:
        _check_left(history, enqueued, left)


def _check_enqueues(history: History) -> dict[int, tuple[Any, Called | None]]:
    """Each offset that was told to somebody, with its value and its call."""
    known: dict[int, tuple[Any, Called | None]] = {}
    for call in history.calls:
        if call.kind == "enqueue" and isinstance(call.result, int):
            for index, value in enumerate(call.values):
                offset = call.result + index
                if offset in known:
                    raise Wrong(f"offset {offset} was given to {known[offset][0]!r} and {value!r}")
                known[offset] = (value, call)
    in_doubt = {
        value: call
        for call in history.calls
        if call.kind == "enqueue" and call.may_have_happened
        for value in call.values
    }
    # What came out without its caller having been told went in by a call that is in doubt.
    for call in history.calls:
        if not isinstance(call.result, tuple):
            continue
        for offset, value in call.result:
            if offset in known:
                if known[offset][0] != value:
                    raise Wrong(f"{value!r} came out at {offset}, where {known[offset][0]!r} is")
            elif value not in in_doubt:
                raise Wrong(f"{value!r} came out at {offset}, and was never put in there")
            else:
                known[offset] = (value, in_doubt[value])
    values = [value for value, _ in known.values()]
    if len(set(values)) != len(values):
        raise Wrong("one value stands at two offsets")
    return known


def _check_group(
    history: History, group: str, enqueued: dict[int, tuple[Any, Called | None]]
) -> None:
    taken: dict[int, Called] = {}
    for call in history.calls:
        if call.kind != "dequeue" or call.group != group or not isinstance(call.result, tuple):
            continue
        offsets = [offset for offset, _ in call.result]
        if offsets != list(range(offsets[0], offsets[0] + len(offsets))) if offsets else False:
            raise Wrong(f"a dequeue took {offsets}, which are not side by side")
        if len(offsets) > call.count:
            raise Wrong(f"a dequeue of {call.count} took {len(offsets)}")
        for offset in offsets:
            if offset in taken:
                raise Wrong(f"entry {offset} was taken twice by group {group!r}")
            taken[offset] = call
            origin = enqueued[offset][1]
            if origin is not None and call.ended is not None and call.ended < origin.began:
                raise Wrong(f"entry {offset} was taken before it was put in")


def _check_real_time(history: History) -> None:
    """A call that ended before another began comes first."""
    enqueues = [
        (call, call.result, call.result + len(call.values))
        for call in history.calls
        if call.kind == "enqueue" and isinstance(call.result, int)
    ]
    _check_order(enqueues, "put in")
    for group in history.groups:
        dequeues = [
            (call, call.result[0][0], call.result[-1][0] + 1)
            for call in history.calls
            if call.kind == "dequeue"
            and call.group == group
            and isinstance(call.result, tuple)
            and call.result
        ]
        _check_order(dequeues, "taken")


def _check_order(calls: list[tuple[Called, int, int]], what: str) -> None:
    calls.sort(key=lambda one: one[1])
    earliest_end: int | None = None
    for call, first, _ in reversed(calls):
        if earliest_end is not None and earliest_end < call.began:
            raise Wrong(f"entry {first} was {what} after a later one was")
        if call.ended is not None:
            earliest_end = call.ended if earliest_end is None else min(earliest_end, call.ended)


def _check_answers(history: History, enqueued: dict[int, tuple[Any, Called | None]]) -> None:
    """Empty and full are said only when they can have been so."""
    gone: dict[tuple[str, int], int | None] = {}
    for call in history.calls:
        if call.kind == "dequeue" and isinstance(call.result, tuple):
            for offset, _ in call.result:
                gone[call.group, offset] = call.began
    overwrites = any(call.overwrite for call in history.calls)
    in_doubt = any(call.may_have_happened for call in history.calls if call.kind == "dequeue")
    for call in history.calls:
        if call.ended is None or in_doubt or overwrites:
            continue
        if call.kind == "dequeue" and call.result == ():
            for offset, (value, origin) in enqueued.items():
                put = (
                    origin.ended if origin is not None and isinstance(origin.result, int) else None
                )
                left = gone.get((call.group, offset))
                if put is not None and put < call.began and (left is None or left > call.ended):
                    raise Wrong(
                        f"{value!r} was in the ring all the time that it was said to be empty"
                    )
    if (
        not overwrites
        and not in_doubt
        and not any(call.may_have_happened for call in history.calls)
    ):
        for call in history.calls:
            if call.result is Result.FULL and call.ended is not None:
                present = sum(
                    1
                    for offset, (_, origin) in enqueued.items()
                    if origin is not None
                    and origin.began < call.ended
                    and not all(
                        _ended_before(history, group, offset, call.began)
                        for group in history.groups
                    )
                )
                if present + len(call.values) <= history.capacity:
                    raise Wrong(f"the ring was said to be full with {present} entries at most")


def _ended_before(history: History, group: str, offset: int, moment: int) -> bool:
    for call in history.calls:
        if (
            call.kind == "dequeue"
            and call.group == group
            and isinstance(call.result, tuple)
            and any(one == offset for one, _ in call.result)
        ):
            return call.ended is not None and call.ended < moment
    return False


def _check_left(
    history: History, enqueued: dict[int, tuple[Any, Called | None]], left: Entries
) -> None:
    offsets = [offset for offset, _ in left]
    if offsets != list(range(offsets[0], offsets[0] + len(offsets))) if offsets else False:
        raise Wrong(f"{offsets} are left, which are not side by side")
    if len(left) > history.capacity:
        raise Wrong(f"{len(left)} entries are left in a ring of {history.capacity}")
    for offset, value in left:
        if offset in enqueued and enqueued[offset][0] != value:
            raise Wrong(f"{value!r} is left at {offset}, where {enqueued[offset][0]!r} was put in")
        if offset not in enqueued and not any(
            call.may_have_happened and value in call.values for call in history.calls
        ):
            raise Wrong(f"{value!r} is left, and was never put in")
    overwrites = any(call.overwrite for call in history.calls)
    in_doubt = any(call.may_have_happened and call.kind == "dequeue" for call in history.calls)
    kept = set(offsets)
    for group in history.groups:
        taken = {
            offset
            for call in history.calls
            if call.kind == "dequeue" and call.group == group and isinstance(call.result, tuple)
            for offset, _ in call.result
        }
        lost = enqueued.keys() - taken - kept
        if lost and not overwrites and not in_doubt:
            raise Wrong(f"entries {sorted(lost)} are lost to group {group!r}")
        if lost and overwrites and offsets and max(lost) >= offsets[0]:
            raise Wrong(f"entries {sorted(lost)} are lost, and others that are older are not")
        if len(history.groups) == 1 and taken & kept:
            raise Wrong(f"entries {sorted(taken & kept)} were taken, and are still there")


# A state of the model: the tail, the heads of the groups, and all values ever put in, by offset.
State: TypeAlias = tuple[int, tuple[int, ...], tuple[Any, ...]]


def linearizable(history: History, ended: State | None = None) -> bool:
    """Whether the calls can be put into an order, each between its beginning and its end, in which
    a bounded queue gives these answers, and is in the state `ended` at the end, if that is known.
    Exact, and slow: for short histories.
    """
    calls = [call for call in history.calls if call.result is not Result.NOTHING]
    ends = [call.ended if not call.may_have_happened else None for call in calls]
    everything = (1 << len(calls)) - 1
    needed = sum(1 << index for index, call in enumerate(calls) if not call.may_have_happened)
    seen: set[tuple[int, State]] = set()

    def search(done: int, state: State) -> bool:
        if done & needed == needed and (ended is None or state == ended):
            return True
        if done == everything or (done, state) in seen:
            return False
        seen.add((done, state))
        open_ends = [
            end for index, end in enumerate(ends) if not done >> index & 1 and end is not None
        ]
        latest = min(open_ends) if open_ends else None
        for index, call in enumerate(calls):
            if done >> index & 1 or (latest is not None and call.began > latest):
                continue
            after = _apply(history, call, state)
            if after is not None and search(done | 1 << index, after):
                return True
        return False

    return search(0, (0, (0,) * len(history.groups), ()))


def _apply(history: History, call: Called, state: State) -> State | None:
    """The model after a call, or None if it cannot have given this answer."""
    tail, heads, values = state
    head = min(heads)
    told = call.result if not call.may_have_happened else None
    if call.kind == "get":
        found = ((call.offset, values[call.offset]),) if head <= call.offset < tail else ()
        return state if told == found else None
    if call.kind == "enqueue":
        full = not call.overwrite and tail - head + len(call.values) > history.capacity
        if told is Result.FULL:
            return state if full else None
        if full or (told is not None and told != tail):
            return None
        after = tail + len(call.values)
        least = after - history.capacity
        return after, tuple(max(one, least) for one in heads), (*values, *call.values)
    place = history.groups.index(call.group)
    begin = heads[place]
    end = min(tail, begin + call.count)
    taken = tuple((offset, values[offset]) for offset in range(begin, end))
    if told is not None and told != taken:
        return None
    return tail, (*heads[:place], end, *heads[place + 1 :]), values


def drained(entries: Sequence[Any]) -> Entries:
    """Entries of a ring as pairs."""
    return tuple((entry.offset, entry.value) for entry in entries)
