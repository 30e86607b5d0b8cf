"""A connection on which a request takes too long to arrive is closed, as is one on which an answer
takes too long to leave.

A server takes so many connections at once. Who opened as many and said nothing, or one byte now and
then, would keep everybody else out, without a token. So would who asks, and does not listen.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.limits import HTTP_ARRIVAL_S_MAX, HTTP_CONNECTIONS_MAX, HTTP_TAKEN_BYTES_MIN, KIB

_BEHIND_BYTES = 64 * KIB  # that wait to be taken


class TimedProtocol(H11Protocol):
    """Uvicorn's own, but for the time from a connection, or the answer before, to the end of the
    next request, and for what has waited to be taken since the client fell behind. How long it
    takes to make an answer is the service's business.
    """

    _deadline: asyncio.TimerHandle | None = None
    _is_behind = False  # whether the client has much of an answer still to take
    _look: asyncio.TimerHandle | None = None  # the next one at what the client has not taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self.transport.set_write_buffer_limits(_BEHIND_BYTES)  # It is eight times as much with TLS.
        if len(self.connections) > HTTP_CONNECTIONS_MAX:
            # Uvicorn would answer that there are too many, and wait for a request to say so to.
            self.transport.abort()
            return
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._look_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._is_behind = True
        self._unwatch()
        self._look_later()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._is_behind = False
        if not self.transport.is_closing():
            self._look_no_more()
            self._watch()

    def _watch(self) -> None:
        """Have a deadline for the rest of a request, once the answer before was taken."""
        if self.transport.is_closing():
            self._unwatch()
            self._look_later()  # It is closed when everything is taken, which may be never.
        elif self._is_behind or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unwatch()
        elif self._deadline is None:
            # Not again with each byte, or one now and then would do.
            self._deadline = self.loop.call_later(HTTP_ARRIVAL_S_MAX, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _look_later(self) -> None:
        if self._look is None and not self._ends_by_itself:
            left = self.transport.get_write_buffer_size()
            self._look = self.loop.call_later(HTTP_ARRIVAL_S_MAX, self._look_at, left)

    def _look_at(self, before: int) -> None:
        """Go on with a client that takes its answer, however slowly a large one arrives."""
        self._look = None
        if self._ends_by_itself:
            return
        if before - self.transport.get_write_buffer_size() < HTTP_TAKEN_BYTES_MIN:
            self.transport.abort()
        else:
            self._look_later()

    @property
    def _ends_by_itself(self) -> bool:
        """Whether asyncio waits for the end no longer than half a minute, as it does with TLS: it
        may have let go of what is not taken by then.
        """
        return self.scheme == "https" and self.transport.is_closing()

    def _look_no_more(self) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
