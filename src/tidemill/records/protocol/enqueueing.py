"""Enqueue: lock, write the entries where nobody can read them yet, commit."""

from __future__ import annotations

from tidemill.errors import Fenced, InvalidInput, RingExhausted, TooLarge
from tidemill.limits import INT64_MAX
from tidemill.records.protocol.buffers import write_entries
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Call, acquire, commit, release
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import Metadata
from tidemill.records.protocol.requests import Steps


def enqueue(
    memo: Memo, call: Call, kinds: bytes, values: list[bytes], overwrite: bool
) -> Steps[int | None]:
    """Put entries in, all or none; the offset of the first, or None if there is no room."""
    count = len(values)

    def ready(state: Metadata) -> bool:
        if state.tail > INT64_MAX - count:
            raise RingExhausted(
                f"ring {memo.name!r} has used up its offsets, all 2^63 of them: move to another"
            )
        return overwrite or state.tail - state.head + count <= state.geometry.capacity

    while True:
        held = yield from acquire(memo, call, ready)
        if held is None:
            return None
        try:
            try:
                block = yield from write_entries(memo, held, kinds, values)
            except (Exception, KeyboardInterrupt):
                yield from release(memo, held)
                raise
            yield from commit(memo, call, held, held.metadata.enqueued(count))
        except Fenced:
            if not (yield from call.begin_again()):
                raise
            continue
        memo.block = block
        return held.metadata.tail


def check_count(shape: Geometry, count: int, overwrite: bool) -> None:
    """Refuse a batch that never fits."""
    if count < 1:
        raise InvalidInput("give at least one value to enqueue")
    if overwrite and count > shape.overwrites_max:
        raise TooLarge(
            f"{count} entries cannot be written over others at once in this ring: at most "
            f"{shape.overwrites_max} can"
        )
    if count > shape.capacity:
        raise TooLarge(f"{count} entries never fit into a ring of {shape.capacity}")
