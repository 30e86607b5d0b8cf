"""Reading and writing buffer records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemill.errors import Corrupt, OutcomeUnknown, Unavailable, UnknownFormat
from tidemill.limits import RING_BUFFERS_PER_CALL
from tidemill.records.protocol.block import Block, decode_block
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Held, check_held
from tidemill.records.protocol.memo import Memo, SeenBlock
from tidemill.records.protocol.requests import GetBuffers, Steps, WriteBuffers
from tidemill.records.protocol.values import Taken
from tidemill.records.store import Record, Write

# Each attempt that fails is a lost answer, or the last write of a client that lost the lock.
ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class Stored:
    """What lies in a record."""

    block: Block
    generation: int


def read_blocks(memo: Memo, shape: Geometry, numbers: Sequence[int]) -> Steps[list[Stored | None]]:
    """What lies in the records that are for these blocks: these, or older ones, or nothing."""
    found: list[Stored | None] = []
    names = [memo.buffer_name(shape.index_of(number)) for number in numbers]
    for start in range(0, len(names), RING_BUFFERS_PER_CALL):
        part = tuple(names[start : start + RING_BUFFERS_PER_CALL])
        records: list[Record | None] = yield GetBuffers(part)
        found += [_decode(memo, name, record) for name, record in zip(part, records, strict=True)]
    return found


def gather(shape: Geometry, first: int, end: int, stored: list[Stored | None]) -> Taken:
    """The entries from `first` up to `end` out of their blocks; fewer if one is not where it
    belongs.
    """
    kinds: list[bytes] = []
    values: list[bytes] = []
    for number, found in zip(shape.blocks(first, end), stored, strict=True):
        start = max(first, number * shape.slots)
        stop = min(end, (number + 1) * shape.slots)
        if found is None or not covers(found.block, number, start, stop):
            break
        part = slice(start - found.block.first, stop - found.block.first)
        kinds.append(found.block.kinds[part])
        values += found.block.values[part]
    return Taken(first, b"".join(kinds), values)


def write_entries(memo: Memo, held: Held, kinds: bytes, values: list[bytes]) -> Steps[SeenBlock]:
    """Write entries behind the tail, where nobody can read them yet; returns the last block."""
    shape = held.metadata.geometry
    tail = held.metadata.tail
    pending = list(shape.blocks(tail, tail + len(values)))
    written: dict[int, Stored] = {}
    stored = yield from _read_or_remember(memo, held, pending)
    for _ in range(ATTEMPTS_MAX):
        blocks: list[Block] = []
        for number, found in zip(pending, stored, strict=True):
            try:
                block = compose(held, number, found, kinds, values)
            except Corrupt:
                yield from check_held(memo, held)
                raise
            if found is None:
                blocks.append(block)
            elif found.block == block:
                written[number] = found  # by us, and the answer was lost
            else:
                if may_be_of_another(held, found.block):
                    yield from check_held(memo, held)
                blocks.append(block)
        generations = {
            number: None if found is None else found.generation
            for number, found in zip(pending, stored, strict=True)
        }
        answers = yield from _write(memo, shape, blocks, generations)
        for block, answer in zip(blocks, answers, strict=True):
            if answer is not None:
                written[block.number] = Stored(block, answer)
        pending = [block.number for block in blocks if block.number not in written]
        if not pending:
            last = written[max(written)]
            return SeenBlock(last.block, last.generation, last.block.end)
        stored = yield from read_blocks(memo, shape, pending)
    raise Unavailable(
        f"the buffers of ring {memo.name!r} could not be written in {ATTEMPTS_MAX} attempts"
    )


def compose(
    held: Held, number: int, found: Stored | None, kinds: bytes, values: list[bytes]
) -> Block:
    """A block with its part of the new entries, behind those in it that can still be read."""
    state = held.metadata
    start = number * state.geometry.slots
    first = max(start, state.tail)  # of the new ones
    end = min(start + state.geometry.slots, state.tail + len(values))
    part = slice(first - state.tail, end - state.tail)
    kept = max(start, state.head)  # the first of the old ones
    if kept >= first:
        return Block(state.ring, number, first, held.token, kinds[part], values[part])
    if found is None or not covers(found.block, number, kept, first):
        raise Corrupt(f"entries {kept} to {first - 1} of the ring are not in the record for them")
    old = slice(kept - found.block.first, first - found.block.first)
    return Block(
        state.ring,
        number,
        kept,
        held.token,
        found.block.kinds[old] + kinds[part],
        found.block.values[old] + values[part],
    )


def may_be_of_another(held: Held, block: Block) -> bool:
    """Whether a block may hold what somebody has written who has, or had, the lock after us.

    A later grant has a higher token, unless the store has lost its last writes since. But whoever
    wrote, wrote behind our tail: what lies there is theirs, or was never committed.
    """
    return block.mark >= held.token or block.end > held.metadata.tail


def covers(block: Block, number: int, first: int, end: int) -> bool:
    """Whether a block is the one with this number, and has these entries."""
    return block.number == number and block.first <= first and end <= block.end


def _read_or_remember(memo: Memo, held: Held, numbers: list[int]) -> Steps[list[Stored | None]]:
    """The records to be written; the one with the last entry may be remembered."""
    shape = held.metadata.geometry
    known = memo.block
    if known is None or known.block.number != numbers[0] or known.block.end < held.metadata.tail:
        return (yield from read_blocks(memo, shape, numbers))
    others = yield from read_blocks(memo, shape, numbers[1:])
    return [Stored(known.block, known.generation), *others]


def _write(
    memo: Memo, shape: Geometry, blocks: list[Block], generations: dict[int, int | None]
) -> Steps[list[int | None]]:
    """Write records, each on its own condition; None where it was not, or one cannot know."""
    answers: list[int | None] = []
    for start in range(0, len(blocks), RING_BUFFERS_PER_CALL):
        writes = tuple(
            Write(
                memo.buffer_name(shape.index_of(block.number)),
                block.encode(),
                generations[block.number],
            )
            for block in blocks[start : start + RING_BUFFERS_PER_CALL]
        )
        try:
            answers += yield WriteBuffers(writes)
        except OutcomeUnknown:
            answers += [None] * len(writes)
    return answers


def _decode(memo: Memo, name: str, record: Record | None) -> Stored | None:
    if record is None:
        return None
    try:
        block = decode_block(record.data)
    except (Corrupt, UnknownFormat) as error:
        raise type(error)(f"record {name}: {error}") from error
    if block.ring != memo.ring:
        raise Corrupt(f"record {name} belongs to another ring")
    return Stored(block, record.generation)
