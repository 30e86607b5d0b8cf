"""Removing a ring.

The metadata goes first, under the lock: from then on there is no such ring, and a new one of the
same name has buffer records of its own. Then the buffers go. Whoever dies in between leaves records
that nobody will ever look at.
"""

from __future__ import annotations

from tidemill.errors import Locked, NotAQueue, OutcomeUnknown, TidemillError, Unavailable
from tidemill.limits import RING_BUFFERS_PER_CALL
from tidemill.records.protocol.creation import home_name
from tidemill.records.protocol.lock import Call, acquire
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.requests import DeleteBuffer, DeleteMetadata, GetBuffers, Steps


def remove_ring(memo: Memo, call: Call, *, has_buffers: bool = True) -> Steps[None]:
    """Remove a ring, with everything that is in it, unless nobody knows where its buffers are."""
    unknown: OutcomeUnknown | None = None
    while True:
        try:
            held = yield from acquire(memo, call, lambda _: True)
            if held is None:
                return  # never: a call is always ready for it
            records = held.metadata.geometry.records
            memo.forget()
            if (yield DeleteMetadata(held.generation)):
                break
        except NotAQueue:
            if unknown is None:
                raise
            break  # it went, and the answer was lost
        except OutcomeUnknown as error:
            # Whoever asks for the lock next sees whether it went.
            if unknown is not None and not (yield from call.pause()):
                raise
            unknown = error
        except Unavailable as error:
            if unknown is None:
                raise
            if not (yield from call.pause()):
                raise unknown from error
        except Locked:
            raise  # the record was written since, and so cannot go any more
        except TidemillError as error:
            # What is refused now was sent before as well, and that may still be done.
            if unknown is None:
                raise
            raise unknown from error
    if not has_buffers:
        return
    call.locked_since_s = None  # This is waiting for something else.
    yield from _delete(memo, call, home_name(memo.buffers, memo.ring))
    for start in range(0, records, RING_BUFFERS_PER_CALL):
        indexes = range(start, min(start + RING_BUFFERS_PER_CALL, records))
        yield from _delete(memo, call, *(memo.buffer_name(index) for index in indexes))


def _delete(memo: Memo, call: Call, *names: str) -> Steps[None]:
    """Delete what there is of these; a store that is away is waited for, as nobody comes again."""
    while True:
        try:
            for name, record in zip(names, (yield GetBuffers(names)), strict=True):
                if record is not None:
                    yield DeleteBuffer(name, record.generation)
        except (OutcomeUnknown, Unavailable) as error:
            if not (yield from call.pause()):
                raise Unavailable(
                    f"ring {memo.name!r} is gone, but records of its entries are left, whose names "
                    f"begin with {memo.buffer_prefix!r}; nobody looks at them any more: {error}"
                ) from error
        else:
            return
