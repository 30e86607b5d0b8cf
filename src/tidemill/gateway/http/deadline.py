"""A connection on which a request takes too long to arrive is closed.

A server takes so many connections at once. Who opened as many and said nothing, or one byte now and
then, would keep everybody else out, without a token.
"""

from __future__ import annotations

import asyncio
from typing import cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from tidemill.limits import HTTP_ARRIVAL_S_MAX


class TimedProtocol(H11Protocol):
    """Uvicorn's own, but for the time from a connection, or the answer before, to the end of the
    next request. How long the answer takes is the service's business.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast(asyncio.Transport, transport))
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Have a deadline as long as a request is not there as a whole."""
        if self.transport.is_closing() or self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._unwatch()
        elif self._deadline is None:
            # Not again with each byte, or one now and then would do.
            self._deadline = self.loop.call_later(HTTP_ARRIVAL_S_MAX, self.transport.abort)

    def _unwatch(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
