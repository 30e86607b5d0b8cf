"""Dequeue: lock, read the entries at the head of a group, commit that they are gone."""

from __future__ import annotations

from tidemill.errors import Corrupt, Fenced, GroupRemoved, OutcomeUnknown
from tidemill.records.protocol.buffers import Stored, gather, read_blocks
from tidemill.records.protocol.lock import Call, Held, acquire, check_held, commit, release
from tidemill.records.protocol.memo import Memo, SeenBlock
from tidemill.records.protocol.metadata import Group, Metadata
from tidemill.records.protocol.requests import Steps
from tidemill.records.protocol.values import Entry, Taken


def dequeue(memo: Memo, call: Call, group_id: int, count_max: int) -> Steps[list[Entry] | None]:
    """Take out up to `count_max` entries for a group; None if there is nothing."""

    def ready(state: Metadata) -> bool:
        return find_group(memo, state, group_id).head < state.tail

    while True:
        held = yield from acquire(memo, call, ready)
        if held is None:
            return None
        group = find_group(memo, held.metadata, group_id)
        end = min(held.metadata.tail, group.head + count_max)
        try:
            try:
                # Before they are gone: what cannot be told stays in, and so does all beside it.
                entries = (yield from _read(memo, held, group.head, end)).entries()
            except (Exception, KeyboardInterrupt):
                yield from release(memo, held)
                raise
            try:
                yield from commit(memo, call, held, held.metadata.dequeued(group, end - group.head))
            except OutcomeUnknown as error:
                error.entries = entries  # which nobody else gets if it was committed
                raise
        except Fenced:
            if not (yield from call.begin_again()):
                raise
            continue
        return entries


def find_group(memo: Memo, state: Metadata, group_id: int) -> Group:
    """The group with this id."""
    group = state.group(group_id)
    if group is None:
        raise GroupRemoved(f"the group was removed from ring {memo.name!r}; make it again")
    return group


def _read(memo: Memo, held: Held, first: int, end: int) -> Steps[Taken]:
    """The entries that the holder of the lock takes."""
    known = memo.block
    if known is not None and known.block.first <= first and end <= known.end:
        part = slice(first - known.block.first, end - known.block.first)
        return Taken(first, known.block.kinds[part], known.block.values[part])
    shape = held.metadata.geometry
    stored = yield from read_blocks(memo, shape, shape.blocks(first, end))
    taken = gather(shape, first, end, stored)
    if taken.end != end:
        yield from check_held(memo, held)
        raise Corrupt(
            f"entry {taken.end} of ring {memo.name!r} is not in the record for it: the store lost "
            "it, or gave back an older state"
        )
    last = stored[-1]
    if last is not None:
        memo.block = _remembered(last, held.metadata.tail)
    return taken


def _remembered(found: Stored, tail: int) -> SeenBlock:
    """A block of which all that lies below the tail is committed."""
    return SeenBlock(found.block, found.generation, min(tail, found.block.end))
