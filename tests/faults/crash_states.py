"""Every state of the disk that a crash may leave, derived from a trace.

The death of a process keeps all that was written: the state in which nothing is lost. A power cut
keeps what was synced, and of the rest what it pleases:

    content of a file      as of its last sync   + any subset of the changes since
    entries of a folder    as of its last sync   + any subset of the changes since
    a write                whole, a prefix, a suffix, or with single sectors missing

A pending operation is a `Unit`, a bit of a mask: kept or lost. At each point of the trace all
subsets are enumerated where few units are pending; otherwise everything, nothing, prefixes, and
all but or only one, two or three of them. One write at a time is torn besides, with all, none,
all but one or all but two of the others kept.

States are told apart by their files together with what had been promised by then, since the same
disk that was right before an acknowledgement may be wrong after it. Only kept operations that
matter reach the hash: names that are lost hide what they name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations
from typing import Literal, NamedTuple, TypeAlias

import xxhash

from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.pending import Pending, Unit
from tests.faults.tears import Tear, TearAt, tears_of
from tests.faults.trace import Image, Mark, Trace, Write


@dataclass(frozen=True, slots=True)
class Limits:
    """Up to how many pending units each class of states is enumerated; above, it is left out."""

    # All 2ⁿ subsets.
    subsets: int = 6
    # Any two lost, any two kept.
    pairs: int = 24
    # Any three lost, any three kept.
    triples: int = 10
    # One write torn and any one other unit lost, for the last write; any two others lost.
    hole_tears: int = 24
    hole_hole_tears: int = 6


DEFAULT_LIMITS = Limits()


class Choice(NamedTuple):
    """Which pending units a crash kept, as bits, and which of the kept was torn."""

    kept: int
    torn: TearAt | None = None


# The hash of what a choice leaves, and whether it must be seen whatever the budget.
Keyed: TypeAlias = tuple[int, Choice, bool]


@dataclass(frozen=True, slots=True)
class CrashState:
    """One state of the disk that a crash after the first `point` operations may leave."""

    trace: Trace
    point: int
    choice: Choice
    image: Image
    # The marks before the crash.
    marks: tuple[Mark, ...]

    def file_system(self) -> MemoryFileSystem:
        """A new file system in that state, all of it durable, with a trace of its own."""
        return MemoryFileSystem(self.image)

    @property
    def id(self) -> str:
        """What `replay_state` needs to make this state again from the same trace."""
        torn = self.choice.torn
        return f"{self.point}:{self.choice.kept:x}" + (f":{torn.unit}:{torn.tear}" if torn else "")

    def describe(self) -> str:
        """The last operations before the crash, and the fate of each pending one, for people."""
        pending = _pending_at(self.trace, self.point)
        torn = self.choice.torn
        lines = [
            f"crash after {self.point} of {len(self.trace.operations)} operations; id {self.id}"
        ]
        for unit in pending.units:
            fate = "kept" if self.choice.kept >> unit.bit & 1 else "LOST"
            if torn is not None and torn.unit == unit.bit:
                fate = f"TORN {torn.tear}"
            lines.append(f"  {fate}: #{unit.index} {unit}")
        tail = range(max(0, self.point - 8), self.point)
        lines.append("  the last operations:")
        lines.extend(f"    #{index} {self.trace.operations[index]}" for index in tail)
        lines.append("  the files:")
        for path, inode in self.image.files().items():
            content = self.image.contents[inode]
            lines.append(f"    {path}: {content.size} bytes, {len(content.data)} before the zeroes")
        return "\n".join(lines)


def enumerate_states(
    trace: Trace,
    *,
    budget: int | None = None,
    tear: Literal["edges", "bytes"] = "edges",
    limits: Limits = DEFAULT_LIMITS,
    seed: int = 0,
    since: int = 0,
    ignored: str = "",
) -> Iterator[CrashState]:
    """The distinct states that a crash at any point of the trace may leave.

    A trace that begins like another one need not be looked at from its beginning: `since` is how
    many of its operations they share. States that differ in files named `ignored` alone are one.

    With a `budget`, states beyond the most telling ones (everything kept, nothing kept, one unit
    lost or kept) are sampled by their hash and `seed`, evenly over the whole trace, so that about
    that many come out.
    """
    share = 1.0
    points = _keyed_points(trace, tear, limits, since, ignored)
    if budget is not None:
        # To make a key is what takes long, so that all are kept for the second time.
        choices = [keyed for _, keyed in points]
        share = _share(choices, budget)
        points = zip(
            (pending for pending, _ in _points(trace, since, ignored)), choices, strict=True
        )
    salt = xxhash.xxh3_64_intdigest(seed.to_bytes(8, "little"))
    seen: set[int] = set()
    for pending, keyed in points:
        marks = tuple(pending.marks)
        for key, choice, must in keyed:
            if key in seen:
                continue
            if not must and share < 1:
                drawn = (key >> 32) % 2**64 ^ salt
                if drawn >= share * 2**64:
                    continue
            seen.add(key)
            image = pending.image(choice.kept, choice.torn)
            yield CrashState(trace, pending.point, choice, image, marks)


def count_states(trace: Trace) -> tuple[int, int]:
    """How many states there are in all, and how many of them no budget leaves out."""
    return _counted([keyed for _, keyed in _keyed_points(trace, "edges", DEFAULT_LIMITS)])


def _counted(choices: list[list[Keyed]]) -> tuple[int, int]:
    seen: dict[int, bool] = {}
    for key, _, must in chain.from_iterable(choices):
        seen[key] = must or seen.get(key, False)
    return len(seen), sum(seen.values())


def _keyed_points(
    trace: Trace,
    tear: Literal["edges", "bytes"],
    limits: Limits,
    since: int = 0,
    ignored: str = "",
) -> Iterator[tuple[Pending, list[Keyed]]]:
    """What is pending at each point, and the choices there."""
    for pending, fresh in _points(trace, since, ignored):
        yield (
            pending,
            [
                (pending.key(choice.kept, choice.torn), choice, must)
                for choice, must in _choices(pending, fresh, tear, limits)
            ],
        )


def _share(choices: list[list[Keyed]], budget: int) -> float:
    total, telling = _counted(choices)
    if total <= budget:
        return 1.0
    return max(0, budget - telling) / (total - telling) if total > telling else 1.0


def replay_state(trace: Trace, state_id: str) -> CrashState:
    """The state that printed `state_id`, from the same trace."""
    point, kept, *torn = state_id.split(":")
    pending = _pending_at(trace, int(point))
    tear_at = TearAt(int(torn[0]), Tear.parse(torn[1])) if torn else None
    choice = Choice(int(kept, 16), tear_at)
    image = pending.image(choice.kept, tear_at)
    return CrashState(trace, int(point), choice, image, tuple(pending.marks))


def _pending_at(trace: Trace, point: int, ignored: str = "") -> Pending:
    pending = Pending(trace.initial, ignored)
    for operation in trace.operations[:point]:
        pending.apply(operation)
    return pending


def _points(trace: Trace, since: int, ignored: str) -> Iterator[tuple[Pending, int]]:
    """What is pending at each point that can bring new states, and the bits at least one of which
    a new state keeps.

    A point that only adds units brings no state that loses all of them: those belong to the point
    before. Zero bits: all states are to be seen again, for something was promised or became
    durable.
    """
    pending = _pending_at(trace, since, ignored)
    if not since:
        yield pending, 0
    for operation in trace.operations[since:]:
        before = len(pending.units)
        pending.apply(operation)
        added = len(pending.units) - before
        if added > 0:
            yield pending, (1 << len(pending.units)) - (1 << before)
        elif added < 0 or (isinstance(operation, Mark) and operation.promise):
            yield pending, 0


def _choices(
    pending: Pending, fresh: int, tear: Literal["edges", "bytes"], limits: Limits
) -> Iterator[tuple[Choice, bool]]:
    """The choices at one point, and whether each must be seen whatever the budget."""
    units = pending.units
    for kept, must in _masks(len(units), limits):
        if not fresh or kept & fresh:
            yield Choice(kept), must
    writes = [unit for unit in units if isinstance(unit.operation, Write)]
    for unit in reversed(writes):
        is_last = unit is writes[-1]
        bases = [
            kept for kept in _tear_bases(unit, units, limits, is_last) if not fresh or kept & fresh
        ]
        if not bases:
            continue
        assert isinstance(unit.operation, Write)
        every_byte = tear == "bytes" and is_last
        for torn in tears_of(unit.operation, every_byte=every_byte):
            for kept in bases:
                yield Choice(kept, TearAt(unit.bit, torn)), False


def _masks(count: int, limits: Limits) -> Iterator[tuple[int, bool]]:
    """Subsets of `count` units, the most telling first. Some come twice when few units are
    pending.
    """
    full = (1 << count) - 1
    yield full, True
    yield 0, True
    for bit in range(count):
        yield full ^ (1 << bit), True
        yield 1 << bit, True
    if count <= limits.subsets:
        for kept in range(1, full):
            yield kept, False
        return
    for bit in range(2, count):
        yield (1 << bit) - 1, False
    for size, count_max in ((2, limits.pairs), (3, limits.triples)):
        if count <= count_max:
            for bits in combinations(range(count), size):
                some = sum(1 << bit for bit in bits)
                yield full ^ some, False
                yield some, False


def _tear_bases(unit: Unit, units: list[Unit], limits: Limits, is_last: bool) -> Iterator[int]:
    """What of the other units is kept beside a torn one."""
    full = (1 << len(units)) - 1
    own = 1 << unit.bit
    yield full
    yield own
    # All before it, none after: the order in which a disk without reordering writes.
    yield own * 2 - 1
    others = [1 << other.bit for other in units if other is not unit]
    if is_last and len(others) <= limits.hole_tears:
        for hole in others:
            yield full ^ hole
    if is_last and len(others) <= limits.hole_hole_tears:
        for first, second in combinations(others, 2):
            yield full ^ first ^ second
