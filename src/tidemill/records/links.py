"""Connections to a server of records: borrowed, given back, and tried again where that is safe.

A call that fails ends in one of five ways:

- It was not sent, or the server says that it did nothing, for now (`Busy`): tried again until the
  time of the call is up, then `Unavailable`.
- A read whose answer was lost (`Lost`): the same.
- A write whose answer was lost: `OutcomeUnknown` at once. It may have taken effect, and may even do
  so later. Whoever wrote looks at the record again; nothing is written twice behind his back.
- An answer that no such server gives is as good as none (`Lost`): reading it belongs to `work`.
- one of `tidemill.errors`: the server refused, and would again.

A process that was forked finds the links of its parent here, and opens its own.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from tidemill.errors import Closed, OutcomeUnknown, Unavailable

IDLE_MAX = 8  # links that are kept for the next call
_IDLE_S = 60.0  # after so long without a call a link is not trusted, since networks forget
_PAUSE_S_MIN = 0.005
_PAUSE_S_MAX = 0.5


class Lost(Exception):
    """The link broke, or was silent for too long; what was sent may have taken effect or not."""


class Busy(Exception):
    """The server did not do what was asked, and may if asked again."""


# What comes of reading an answer that has not the form of one.
GARBLED = (LookupError, TypeError, ValueError, AttributeError)


class Link(Protocol):
    """One connection, used by one thread at a time."""

    @property
    def is_stale(self) -> bool:
        """Whether the server has closed it, or it is not known to be whole."""

    def close(self) -> None:
        """Close it without waiting for the server; twice does no harm."""


L = TypeVar("L", bound=Link)
T = TypeVar("T")


class Links(Generic[L]):
    """The links of one store, for any thread; `connect` opens one, within so many seconds."""

    def __init__(self, place: str, connect: Callable[[float], L], timeout_s: float) -> None:
        self._place = place
        self._connect = connect
        self._timeout_s = timeout_s
        self._is_closed = False
        self._forget()

    def _forget(self) -> None:
        """Start with no links. Those of a parent stay open: closing them here tells the server
        nothing.
        """
        for link, _ in getattr(self, "_idle", ()):
            link.close()
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[tuple[L, float]] = []

    def read(self, work: Callable[[L, float], T]) -> T:
        """Do `work`, which gets a link and the seconds left, until it is answered."""
        return self._run(work, is_write=False)

    def write(self, work: Callable[[L, float], T]) -> T:
        """Do `work` once: it is sent again only if it surely had no effect."""
        return self._run(work, is_write=True)

    def _run(self, work: Callable[[L, float], T], *, is_write: bool) -> T:
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = _PAUSE_S_MIN
        before: Lost | Busy | None = None
        while True:
            try:
                return self._try(work, deadline_s, is_write=is_write)
            except (Lost, Busy) as cause:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    # An attempt that ran out of time says less than the one before it.
                    why = before or cause
                    raise Unavailable(
                        f"{self._place} gave no answer within {self._timeout_s:g} s: {why}"
                    ) from why
                before = cause
                # Clients that were cut off together shall not come back together.
                time.sleep(min(pause_s * random.uniform(0.5, 1.0), left_s))
                pause_s = min(2 * pause_s, _PAUSE_S_MAX)

    def _try(self, work: Callable[[L, float], T], deadline_s: float, *, is_write: bool) -> T:
        link = self._borrow(deadline_s)
        try:
            done = work(link, max(deadline_s - time.monotonic(), 0.001))
        except Lost as cause:
            link.close()
            if is_write:
                raise OutcomeUnknown(
                    f"the connection to {self._place} broke in the middle of a write, which may "
                    f"have taken effect: {cause}"
                ) from cause
            raise
        except BaseException:
            # An answer may still come, which belongs to nobody.
            link.close()
            raise
        self._give_back(link)
        return done

    def _borrow(self, deadline_s: float) -> L:
        if os.getpid() != self._pid:
            self._forget()
        while True:
            with self._lock:
                if self._is_closed:
                    raise Closed(f"the records of {self._place} are closed")
                link, used_s = self._idle.pop() if self._idle else (None, 0.0)
            if link is None:
                return self._connect(max(deadline_s - time.monotonic(), 0.001))
            if not link.is_stale and time.monotonic() - used_s < _IDLE_S:
                return link
            link.close()

    def _give_back(self, link: L) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX and not self._is_closed:
                self._idle.append((link, time.monotonic()))
                return
        link.close()

    def close(self) -> None:
        """Close the links; in a process that was forked, forget those of its parent."""
        if os.getpid() != self._pid:
            self._forget()
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for link, _ in idle:
            link.close()
