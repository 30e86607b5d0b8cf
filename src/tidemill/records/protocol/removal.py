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
    yield from _delete(home_name(memo.buffers, memo.ring))
    for start in range(0, records, RING_BUFFERS_PER_CALL):
        indexes = range(start, min(start + RING_BUFFERS_PER_CALL, records))
        yield from _delete(*(memo.buffer_name(index) for index in indexes))


def _delete(*names: str) -> Steps[None]:
    for name, record in zip(names, (yield GetBuffers(names)), strict=True):
        if record is not None:
            try:
                yield DeleteBuffer(name, record.generation)
            except OutcomeUnknown:
                pass  # nobody looks at it any more
