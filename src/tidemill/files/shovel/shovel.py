"""Moves what is left at an end of one queue to another queue, a chunk at a time.

The order of effects, for each chunk:

    1. the next items of the source are chosen, up to the last one there was when the shovel began
    2. they are pushed to the destination, as frames of one operation, and synced, unless neither
       queue syncs anything
    3. one take consumes them at the source

A crash between 2 and 3, or a take that fails, leaves the chunk in both queues; nothing leaves it
in neither. What stops a shovel elsewhere, such as a full destination, stops it between chunks: what
was moved is consumed.

Invariant: no lock of one queue is held while one of the other is taken, so that no two shovels can
wait for each other. The mark of a read keeps other users of the source's end away meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, TypeVarTuple, Unpack

import pyarrow as pa

from tidemill.batch import Batch, int64_values
from tidemill.errors import InvalidInput, TidemillError
from tidemill.files.commit.operation import GivenRows, Push
from tidemill.files.merge.cursor import Cursor
from tidemill.files.shovel.handover import hand_over
from tidemill.files.shovel.remainder import Chunk, Remainder
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import SHOVEL_BYTES

Args = TypeVarTuple("Args")
T = TypeVar("T")


class Attempt(Protocol):
    """Runs something under the lock of the source's end, and again if damage was set aside."""

    def __call__(self, attempt: Callable[[Unpack[Args]], T], *args: *Args) -> T: ...


def shovel(
    source: QueueCore,
    cursor: Cursor,
    target: QueueCore,
    attempt: Attempt,
    on_progress: Callable[[int], None],  # told after each chunk how many items were moved
) -> int:
    """Move the items; returns how many. The caller has marked the end as being read."""
    # A chunk is well below a segment, so that a bounded destination can take it.
    chunk_bytes = min(SHOVEL_BYTES, target.folder.journal.segment_bytes // 4)
    # What fits into one chunk is copied faster than its segment could be handed over.
    moved = hand_over(source, cursor, target, least_bytes=chunk_bytes)
    if moved is not None:
        return moved
    remainder = Remainder(source.folder, cursor, chunk_bytes=chunk_bytes)
    moved = 0
    try:
        while (chunk := attempt(remainder.choose)) is not None:
            _push(source, target, chunk)
            attempt(remainder.consume, chunk)
            moved += chunk.rows
            target.maintenance.after_push()
            source.maintenance.after_take(cursor.fork.id, chunk.rows, cursor.fork.live)
            on_progress(moved)
    except TidemillError as error:
        error.add_note(f"{moved} items had been moved to {target.folder.path} by then")
        raise
    return moved


def check_destination(source: QueueCore, target: QueueCore) -> None:
    """Raise unless items of one can be moved to the other."""
    if target is source:
        raise InvalidInput(
            f"{target.folder.path} is the queue that the items come from; move them to another"
        )
    target.folder.check_open()
    # As a push of no rows, which tells whether any could be pushed.
    target.folder.preparation.rows(Batch.empty(source.folder.payload_schema).uncarried())


def _push(source: QueueCore, target: QueueCore, chunk: Chunk) -> None:
    folder = target.folder
    folder.check_open()
    is_same = source.folder.payload_schema.equals(folder.payload_schema)
    prepare = folder.preparation
    frames = [
        frame
        for body in chunk.bodies
        # Rows of the same columns have passed all the checks of a push already.
        for frame in prepare.frames(_given(body) if is_same else prepare.rows(body))
    ]
    # The take that follows must not outlive the items in a power cut.
    is_synced = not (source.folder.options.sync == folder.options.sync == "none")
    push = Push(sync=is_synced, frames=frames)
    with target.room.reserved(push.total_bytes):
        folder.commit(push)


def _given(body: pa.RecordBatch) -> GivenRows:
    return GivenRows(int64_values(body.column(0)), body)
