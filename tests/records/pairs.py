"""Two operations that meet in a ring: the pairs whose every interleaving is tried."""

from __future__ import annotations

from collections.abc import Iterator

from tests.records.schedules import Pair, filled
from tests.records.simulator import Op, World


def put(*values: str, overwrite: bool = False, patience_s: float = 0.0) -> Op:
    """An enqueue."""
    return Op("enqueue", values, overwrite=overwrite, patience_s=patience_s)


def take(count: int = 1, *, patience_s: float = 0.0) -> Op:
    """A dequeue."""
    return Op("dequeue", count=count, patience_s=patience_s)


def empty() -> World:
    """A ring of 2, with nothing in it."""
    return World(capacity=2, slots=2)


def part(*, has_clock: bool = True) -> World:
    """A ring of 3 with one entry, whose blocks begin in the middle."""
    world = World(capacity=3, slots=2, has_clock=has_clock)
    return filled(world, put("a"), put("b"), take())


def full() -> World:
    """A ring of 2 that is full."""
    return filled(World(capacity=2, slots=2), put("a"), put("b"))


def wrapped() -> World:
    """A full ring of 1 that has gone around, so that each write goes over an older block."""
    ops = [put("a")]
    for number in range(4):
        ops += [take(), put(f"b{number}")]
    return filled(World(capacity=1, slots=1), *ops)


# For each: how the ring is before, and the two operations.
PAIRS = {
    "put and take, empty": (empty, put("x"), take()),
    "put and put, empty": (empty, put("x"), put("y")),
    "put and take": (part, put("x"), take()),
    "put and put": (part, put("x"), put("y")),
    "take and take": (part, take(), take()),
    "put many and take many": (part, put("x", "y"), take(2)),
    "put many and put": (part, put("x", "y"), put("z")),
    "put and take, full": (full, put("x"), take()),
    "overwrite and overwrite": (full, put("x", overwrite=True), put("y", overwrite=True)),
    "overwrite and take": (full, put("x", overwrite=True), take()),
    "overwrite and get": (full, put("x", "y", overwrite=True), Op("get", offset=0)),
    "overwrite all and take all": (full, put("x", "y", overwrite=True), take(2)),
    "overwrite and overwrite, wrapped": (
        wrapped,
        put("x", overwrite=True),
        put("y", overwrite=True),
    ),
    "put and outcome": (part, put("x"), Op("outcome")),
    "take and outcome": (part, take(), Op("outcome")),
}

# The ways in which each pair is tried: how often a lock may expire, and how often each fault may
# happen. An expiry is at every step in turn, and so is a fault.
MODES: dict[str, tuple[int, dict[str, int]]] = {
    "two expiries": (2, {}),
    "lost answer": (1, {"answer lost": 1}),
    "lost request": (1, {"request lost": 1}),
    "refused": (1, {"refused": 1}),
    "crash": (1, {"crash": 1}),
    "late request": (1, {"late": 1}),
}


def pair(name: str, mode: str) -> Pair:
    """A pair in a mode."""
    make, first, second = PAIRS[name]
    expiries, faults = MODES[mode]
    return Pair(make(), (first,), (second,), expiries, faults)


def waiting_pairs() -> Iterator[Pair]:
    """On a store without a clock: the second has to see the token of the first for long enough."""
    for first in (put("x"), take()):
        for second in (put("y", patience_s=0.15), take(patience_s=0.15)):
            yield Pair(part(has_clock=False), (first,), (second,), expiries=0)


# What may go wrong with an operation while somebody asks what became of it.
DOUBTS: dict[str, dict[str, int]] = {
    "nothing": {},
    "lost answer": {"answer lost": 1},
    "lost answers": {"answer lost": 2},
    "lost request": {"request lost": 1},
    "late request": {"late": 1},
}


def asked_for(doubt: str = "nothing") -> Pair:
    """Somebody asks what became of an operation, and others rely on the answer."""
    first = Op("enqueue", ("x",), id="first", patience_s=0.15, again=False)
    return Pair(part(), (first,), (Op("outcome", asks="first"),), 2, DOUBTS[doubt])


def overtaken_reader() -> Pair:
    """Somebody reads an entry, while others write over it and all around the ring."""
    overwrites = tuple(put(f"x{number}", overwrite=True) for number in range(3))
    return Pair(wrapped(), (Op("get", offset=4),), overwrites, expiries=0)
