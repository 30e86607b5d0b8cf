"""A consuming end of a ring: its own, or that of a group."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TypeVar

from xxhash import xxh3_128_digest

from tidemill.clock import wait_seconds
from tidemill.errors import InvalidInput, OutcomeUnknown
from tidemill.limits import RING_OPERATION_ID_BYTES_MAX
from tidemill.records.driving import Driver
from tidemill.records.protocol.dequeueing import dequeue
from tidemill.records.protocol.lock import Call
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.requests import Steps
from tidemill.records.protocol.values import Entry
from tidemill.shown import shown

T = TypeVar("T")


@dataclass(slots=True)
class Core:
    """What the ends of one ring share."""

    memo: Memo
    driver: Driver
    lock_ms: int
    patience_s: float  # to wait for other holders of the lock
    outlasts: bool  # whether to wait longer for a lock whose age nobody tells

    def call(
        self, operation_id: str | None = None, wait_s: float | None = None
    ) -> tuple[Call, str]:
        """One call, with a nonce of its own, and its id."""
        id = os.urandom(16).hex() if operation_id is None else operation_id
        call = Call(
            operation=digest(id),
            nonce=os.urandom(16),
            lock_ms=self.lock_ms,
            patience_s=self.patience_s,
            outlasts=self.outlasts,
            wait_s=0.0 if wait_s is None else wait_seconds(wait_s),
            again=operation_id is None,
        )
        return call, id

    def run(self, steps: Steps[T], operation_id: str) -> T:
        """Run an operation; whoever is left in doubt about it learns what to ask for."""
        try:
            return self.driver.run(steps)
        except OutcomeUnknown as error:
            error.operation_id = operation_id
            raise


def digest(operation_id: object) -> bytes:
    """What stands for the id of an operation in the records."""
    if not isinstance(operation_id, str) or not operation_id:
        raise InvalidInput(f"an operation id is a string, not {shown(operation_id)}")
    encoded = operation_id.encode(errors="surrogatepass")
    if len(encoded) > RING_OPERATION_ID_BYTES_MAX:
        raise InvalidInput(
            f"an operation id has at most {RING_OPERATION_ID_BYTES_MAX} bytes, this one has "
            f"{len(encoded)}"
        )
    return xxh3_128_digest(encoded)


class RingEnd:
    """What a ring and its groups have in common: taking entries out."""

    _core: Core
    _group_id: int

    def dequeue(
        self, *, wait_s: float | None = None, operation_id: str | None = None
    ) -> Entry | None:
        """Take out the oldest entry; None if there is none, with `wait_s` for so long.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-dequeue", capacity=10)
        >>> offset = ring.enqueue(b"one")
        >>> ring.dequeue()
        Entry(offset=0, value=b'one')
        >>> ring.dequeue() is None
        True
        """
        found = self.dequeue_many(1, wait_s=wait_s, operation_id=operation_id)
        return found[0] if found else None

    def dequeue_many(
        self, n: int, *, wait_s: float | None = None, operation_id: str | None = None
    ) -> list[Entry]:
        """Take out the `n` oldest entries, or as many as there are, under one lock.

        With `wait_s` the call waits that long for the first one to come.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-dequeue-many", capacity=10)
        >>> offset = ring.enqueue_many([b"one", {"two": 2}])
        >>> [entry.value for entry in ring.dequeue_many(10)]
        [b'one', {'two': 2}]
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise InvalidInput(f"n is a number of entries from 1 on, not {shown(n)}")
        call, id = self._core.call(operation_id, wait_s)
        steps = dequeue(self._core.memo, call, self._group_id, n)
        return self._core.run(steps, id) or []
