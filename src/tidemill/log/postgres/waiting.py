"""psycopg's connection, which waits for an answer no longer than it was told.

A server that stands still, or a network that swallows packets, would be waited for without end: the
driver bounds the time of a connection attempt alone.
"""

from __future__ import annotations

import select
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.waiting import Ready, Wait

RV = TypeVar("RV")

# A socket that has failed is read, which tells why.
_FAILED = select.POLLERR | select.POLLHUP | select.POLLNVAL


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """Counts as lost if neither side could send anything for `silent_s_max`."""

    silent_s_max = 30.0

    def __del__(self, __warn: object = None) -> None:
        """Says nothing: one that goes with its owner is closed below, unless it is the copy that
        `os.fork()` made, which must not be.
        """

    def wait(
        self,
        gen: PQGen[RV],
        interval: float = 0.0,  # noqa: ARG002 (an interrupt is noticed at once)
        timeout: float | None = None,  # noqa: ARG002
    ) -> RV:
        try:
            wanted = next(gen)
            socket = self.pgconn.socket
            poll = select.poll()
            while True:
                events = (select.POLLIN if wanted & Wait.R else 0) | (
                    select.POLLOUT if wanted & Wait.W else 0
                )
                poll.register(socket, events)
                found = poll.poll(self.silent_s_max * 1000)
                if not found:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(
                        f"the server was silent for {self.silent_s_max:g} s"
                    )
                wanted = gen.send(_ready(found[0][1], wanted))
        except StopIteration as end:
            done: RV = end.value
            return done


def _ready(events: int, wanted: int) -> Ready:
    """What may be done now, of what is wanted.

    >>> _ready(select.POLLIN, Wait.RW), _ready(select.POLLHUP, Wait.W)
    (<Ready.R: 1>, <Ready.W: 2>)
    """
    if events & _FAILED:
        return Ready(wanted)
    readable = Ready.R if events & select.POLLIN else Ready.NONE
    writable = Ready.W if events & select.POLLOUT else Ready.NONE
    return Ready(readable | writable)
