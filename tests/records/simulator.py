"""A ring in a world without threads or clocks: every order of its steps, each fault by choice.

A world has the records and the time. Clients run the protocol's steps; one step is one request,
done by the world in one moment. After every write the invariants are checked by somebody who sees
everything, and at the end the history by somebody who sees what the clients saw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

from tests.records.history import Called, Entries, History, Result, State
from tidemill.errors import Fenced, Locked, OutcomeUnknown, Unavailable
from tidemill.records.protocol.block import Block, decode_block
from tidemill.records.protocol.creation import FIRST_GROUP, FIRST_GROUP_NAME
from tidemill.records.protocol.dequeueing import dequeue
from tidemill.records.protocol.enqueueing import enqueue
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Call
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import Group, Metadata, decode_metadata
from tidemill.records.protocol.reading import Outcome, outcome, read
from tidemill.records.protocol.requests import (
    GetBuffers,
    GetMetadata,
    Now,
    ReplaceMetadata,
    Request,
    Steps,
    Wait,
    WriteBuffers,
)
from tidemill.records.store import Record

RING = b"simulate"
LOCK_MS = 100
HOUR_US = 3_600_000_000


class Violated(AssertionError):
    """An invariant of the ring does not hold."""


@dataclass(frozen=True, slots=True)
class Op:
    """What a client is to do; values are strings, unique in the world."""

    kind: str  # "enqueue", "dequeue", "get" or "outcome"
    values: tuple[str, ...] = ()
    overwrite: bool = False
    group: str = FIRST_GROUP_NAME
    count: int = 1
    offset: int = 0
    id: str = "the same for all"  # the bad habit of giving every operation one id
    asks: str = "the same for all"  # for whose outcome
    patience_s: float = 0.0
    again: bool = True


class Author(NamedTuple):
    """Whose request it is, also when it is done after its client has gone on to something else."""

    nonce: bytes
    op: Op


class World:
    """Records, time, and what is true."""

    def __init__(
        self,
        *,
        capacity: int,
        slots: int,
        groups: Sequence[str] = (FIRST_GROUP_NAME,),
        has_clock: bool = True,
        fence: int = 0,
        tail: int = 0,
    ) -> None:
        shape = Geometry.plan(capacity, slots, 1 << 20)
        self.metadata = Metadata(
            ring=RING,
            flags=0,
            geometry=shape,
            fence=fence,
            tail=tail,
            overwritten=0,
            grant=None,
            groups=tuple(
                Group(FIRST_GROUP - place, name, tail) for place, name in enumerate(groups)
            ),
            ended=b"",
        )
        self.now_us = 0
        self.skew_us = 0  # of the store's clock
        self.has_clock = has_clock
        self.generation = 1
        self.kept: tuple[bytes, int, int] = (self.metadata.encode(), 1, 0)
        self.records: dict[str, tuple[bytes, int]] = {}
        self.blocks: dict[str, Block] = {}  # the same, decoded
        self.history = History(capacity, tuple(groups))
        self.committed: dict[int, bytes] = {}
        self.steps = 0
        self.nonces = 0
        self.broken = 0  # locks that were broken
        self.told: list[tuple[str, Outcome]] = []  # what was said about operations
        self.late: list[tuple[Request, Author]] = []  # requests that are still on their way
        self.faults: dict[str, int] = {}

    def perform(self, request: Request, author: Author) -> Any:
        """Do what is asked for, in one moment."""
        if type(request) is ReplaceMetadata:
            return self._replace_metadata(request, author)
        if type(request) is GetMetadata:
            data, generation, written_us = self.kept
            age_us = self.now_us + self.skew_us - written_us if self.has_clock else None
            return Record(data, generation, age_us)
        if type(request) is GetBuffers:
            return [self._get(name) for name in request.names]
        if type(request) is WriteBuffers:
            return [self._write(*write) for write in _pairs(request)]
        raise AssertionError(f"the world cannot do {request!r}")

    def _get(self, name: str) -> Record | None:
        found = self.records.get(name)
        return None if found is None else Record(found[0], found[1], None)

    def _write(self, name: str, data: bytes, generation: int | None) -> int | None:
        found = self.records.get(name)
        if (None if found is None else found[1]) != generation:
            return None
        self.generation += 1
        self.records[name] = (data, self.generation)
        self.blocks[name] = decode_block(data)
        self.check_readable()
        return self.generation

    def _replace_metadata(self, request: ReplaceMetadata, author: Author) -> int | None:
        if self.kept[1] != request.generation:
            return None
        before, after = self.metadata, decode_metadata(request.data)
        self.generation += 1
        self.kept = (request.data, self.generation, self.now_us + self.skew_us)
        self.metadata = after
        self._check_change(before, after, author)
        self.check_readable()
        return self.generation

    def _check_change(self, before: Metadata, after: Metadata, author: Author) -> None:
        """What one write of the metadata record may do."""
        if after.fence < before.fence or after.tail < before.tail or after.head < before.head:
            raise Violated("a counter of the ring went back")
        heads = {group.id: group.head for group in before.groups}
        if any(group.head < heads[group.id] for group in after.groups):
            raise Violated("the head of a group went back")
        if after.tail == before.tail and after.groups == before.groups:
            if before.grant is not None and after.grant is not None:
                self.broken += 1
            return
        # Something was committed.
        if before.grant is None or before.grant.nonce != author.nonce or after.grant is not None:
            raise Violated("an operation was committed without the lock")
        if after.tail > before.tail:
            for index in range(after.tail - before.tail):
                self.committed[before.tail + index] = author.op.values[index].encode()

    def check_readable(self) -> None:
        """Every entry from head to tail is where it belongs, and what was committed."""
        state = self.metadata
        shape = state.geometry
        head, tail = state.head, state.tail
        if not 0 <= tail - head <= shape.capacity:
            raise Violated(f"the ring holds {tail - head} of {shape.capacity} entries")
        for offset in range(head, tail):
            number = offset // shape.slots
            block = self.blocks.get(f"ring:{RING.hex()}:{number % shape.records}")
            if block is None or block.number != number or not block.first <= offset < block.end:
                raise Violated(f"entry {offset} can be read, and is not there")
            if block.values[offset - block.first] != self.committed[offset]:
                raise Violated(f"entry {offset} is not what was committed")

    def clone(self) -> World:
        """The same world, with a future of its own."""
        other = copy(self)
        other.records = dict(self.records)
        other.blocks = dict(self.blocks)
        other.committed = dict(self.committed)
        other.history = History(self.history.capacity, self.history.groups, [*self.history.calls])
        other.late = []
        other.told = []
        other.faults = {}
        return other

    def deliver(self, index: int) -> None:
        """Do a request that was thought to be lost."""
        request, author = self.late.pop(index)
        self.perform(request, author)

    def left(self) -> Entries:
        """What a reader finds."""
        state = self.metadata
        return tuple(
            (offset, self.committed[offset].decode()) for offset in range(state.head, state.tail)
        )

    def state(self) -> State:
        """What is true, as the model of histories says it."""
        heads = tuple(group.head for group in self.metadata.groups)
        values = tuple(self.committed[offset].decode() for offset in range(self.metadata.tail))
        return self.metadata.tail, heads, values

    def count_fault(self, name: str) -> None:
        self.faults[name] = self.faults.get(name, 0) + 1


def _id(name: str) -> bytes:
    return name.encode().ljust(16)[:16]


def _pairs(request: WriteBuffers) -> list[tuple[str, bytes, int | None]]:
    return [(write.name, write.data, write.generation) for write in request.writes]


class Client:
    """Somebody with a handle on the ring, who does one operation after the other."""

    def __init__(self, name: str, world: World, ops: Sequence[Op], *, clock_s: float = 0.0) -> None:
        self.name = name
        self.world = world
        self.ops = list(ops)
        self.clock_s = clock_s  # how far its own clock is off
        self.memo = Memo("ring", RING)
        self.awake_us = 0  # when it next does something
        self.request: Request | None = None
        self.op = Op("none")
        self.nonce = b""
        self._steps: Steps[Any] | None = None
        self._called: Called | None = None

    @property
    def done(self) -> bool:
        return self._steps is None and not self.ops

    @property
    def asks_the_store(self) -> bool:
        """Whether its next step is a request that can fail."""
        return type(self.request) is not Wait

    def step(self, fault: str | None = None) -> None:
        """Do the request that is next, and go on to the one after it."""
        self.world.steps += 1
        if self._steps is None:
            self._begin()
            self._look_at_clock()
        request = self.request
        if type(request) is Wait:
            self._advance(None)
        elif request is not None:
            if fault is None:
                self._advance(self.world.perform(request, Author(self.nonce, self.op)))
            else:
                self._fail(request, fault)
        self._look_at_clock()

    def _look_at_clock(self) -> None:
        """Which is nothing that others could notice, and so no step of its own."""
        while type(self.request) is Now:
            self._advance(self.world.now_us / 1e6 + self.clock_s)

    def crash(self) -> None:
        """Die where it stands. The next operation is that of a new process with the same name."""
        if self._steps is not None:
            self._steps.close()
        self._steps = self.request = self._called = None
        self.memo = Memo("ring", RING)

    def _fail(self, request: Request, fault: str) -> None:
        """Have something go wrong with a request."""
        self.world.count_fault(fault)
        writes = isinstance(request, ReplaceMetadata | WriteBuffers)
        author = Author(self.nonce, self.op)
        if fault == "answer lost" and writes:
            self.world.perform(request, author)
        elif fault == "late" and writes:
            self.world.late.append((request, author))
        error = OutcomeUnknown if writes and fault != "refused" else Unavailable
        self._advance_with(lambda steps: steps.throw(error(fault)))

    def _begin(self) -> None:
        self.op = op = self.ops.pop(0)
        self.world.nonces += 1
        self.nonce = self.world.nonces.to_bytes(16, "big")
        # It is not the ids that keep operations apart, so all have the same.
        call = Call(_id(op.id), self.nonce, LOCK_MS, op.patience_s, again=op.again)
        if op.kind == "enqueue":
            values = [value.encode() for value in op.values]
            self._steps = enqueue(self.memo, call, bytes(len(values)), values, op.overwrite)
        elif op.kind == "dequeue":
            group = FIRST_GROUP - self.world.history.groups.index(op.group)
            self._steps = dequeue(self.memo, call, group, op.count)
        elif op.kind == "get":
            self._steps = read(Memo("ring", RING), op.offset, 1)
        else:
            self._steps = outcome(self.memo, _id(op.asks))
        self._called = None
        if op.kind != "outcome":
            self._called = Called(
                self.name,
                op.kind,
                self.world.steps,
                values=op.values,
                overwrite=op.overwrite,
                group=op.group,
                count=op.count,
                offset=op.offset,
            )
            self.world.history.calls.append(self._called)
        self._advance_with(next)

    def _advance(self, answer: Any) -> None:
        self._advance_with(lambda steps: steps.send(answer))

    def _advance_with(self, go: Callable[[Steps[Any]], Request]) -> None:
        assert self._steps is not None
        try:
            self.request = go(self._steps)
        except StopIteration as ended:
            self._end(ended.value)
        except (Locked, Fenced, Unavailable):
            self._end_with(Result.NOTHING)
        except OutcomeUnknown:
            self._end_with(Result.UNKNOWN)
        else:
            if type(self.request) is Wait:
                self.awake_us = self.world.now_us + 1 + int(self.request.seconds * 1e6)

    def _end(self, value: Any) -> None:
        if self.op.kind == "enqueue":
            self._end_with(Result.FULL if value is None else value)
        elif self.op.kind == "outcome":
            self.world.told.append((self.op.asks, value))
            self._end_with(Result.NOTHING)
        else:
            self._end_with(tuple((entry.offset, entry.value.decode()) for entry in value or ()))

    def _end_with(self, result: int | Entries | Result) -> None:
        self._steps = self.request = None
        if self._called is not None:
            self._called.ended = self.world.steps
            self._called.result = result
            self._called = None
