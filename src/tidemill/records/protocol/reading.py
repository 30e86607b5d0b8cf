"""What takes no lock: entries by their offset, the state of a ring, the outcome of an operation."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.errors import Corrupt, OutcomeUnknown
from tidemill.records.protocol.buffers import gather, read_blocks
from tidemill.records.protocol.lock import expired, look
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import What
from tidemill.records.protocol.requests import ReplaceMetadata, Steps
from tidemill.records.protocol.values import Entry

# Each attempt to end an operation that fails is a lost answer, or somebody else's that succeeded.
ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an operation.

    `state` is "committed"; or "aborted": it changed nothing, and never will; or "running": it holds
    the lock; or "unknown": it never held the lock, or so many others have ended since that it is
    forgotten. `offset` and `count` tell which entries were enqueued or dequeued, as `kind` says.

    >>> Outcome("committed", kind="enqueue", offset=7, count=1).state
    'committed'
    """

    state: str
    kind: str | None = None
    offset: int | None = None
    count: int = 0


_KINDS: dict[int, str] = {What.ENQUEUED: "enqueue", What.DEQUEUED: "dequeue", What.CHANGED: "group"}


def read(memo: Memo, first: int, count: int) -> Steps[list[Entry]]:
    """Those of the entries from `first` on that are in the ring."""
    while True:
        state = (yield from look(memo)).metadata
        begin, end = max(first, state.head), min(first + count, state.tail)
        if begin >= end:
            return []
        shape = state.geometry
        stored = yield from read_blocks(memo, shape, shape.blocks(begin, end))
        taken = gather(shape, begin, end, stored)
        if taken.end == end:
            return taken.entries()
        # Somebody may have taken it, and somebody else written over it, since the first look.
        if taken.end >= (yield from look(memo)).metadata.head:
            raise Corrupt(
                f"entry {taken.end} of ring {memo.name!r} is not in the record for it: the store "
                "lost it, or gave back an older state"
            )


def outcome(memo: Memo, operation: bytes) -> Steps[Outcome]:
    """What became of an operation; one whose lock has expired is ended by asking."""
    attempts = 0
    while True:
        seen = yield from look(memo)
        grant = seen.metadata.grant
        if grant is None or grant.operation != operation:
            ended = seen.metadata.end_of_operation(operation)
            if ended is None:
                return Outcome("unknown")
            if ended.what == What.ABORTED:
                return Outcome("aborted")
            kind = _KINDS.get(ended.what)
            if kind is None:
                raise Corrupt(f"ring {memo.name!r} has an outcome of the unknown kind {ended.what}")
            if ended.what == What.CHANGED:
                return Outcome("committed", kind=kind)
            return Outcome("committed", kind=kind, offset=ended.offset, count=ended.entries)
        if attempts == ATTEMPTS_MAX or not (yield from expired(memo, seen)):
            return Outcome("running")
        attempts += 1
        try:
            yield ReplaceMetadata(seen.metadata.released().encode(), seen.generation)
        except OutcomeUnknown:
            pass  # the next look tells
