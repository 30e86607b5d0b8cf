"""How long, and how often, to try again: pauses that grow, up to a deadline."""

from __future__ import annotations

import logging
import random
import threading
import time

from tidemill.errors import Unavailable
from tidemill.event import Event

PAUSE_S_MIN = 0.01
PAUSE_S_MAX = 1.0
TELL_S = 1.0  # after so long somebody who waits is told what for

logger = logging.getLogger(__name__)


class Patience:
    """The deadline of one call, and the pauses between its tries.

    >>> Patience(0.0, Event()).pause(ValueError("no"))
    Traceback (most recent call last):
    tidemill.errors.Unavailable: gave up after 0 s: no
    """

    def __init__(self, retry_s: float, closing: Event | threading.Event) -> None:
        self._retry_s = retry_s
        self._closing = closing
        self._deadline_s = time.monotonic() + retry_s
        self._pause_s = PAUSE_S_MIN
        self._is_told = False

    def pause(self, cause: Exception) -> None:
        """Wait before the next try; raises `Unavailable` if there shall be none."""
        left_s = self._deadline_s - time.monotonic()
        if self._closing.is_set():
            raise Unavailable(f"closed while the server was away: {cause}") from cause
        if left_s <= 0:
            raise Unavailable(f"gave up after {self._retry_s:g} s: {cause}") from cause
        if not self._is_told and self._retry_s - left_s > TELL_S:
            self._is_told = True
            logger.warning("%s; trying again for %.0f s", cause, left_s)
        # Many clients that were cut off together shall not come back together.
        pause_s = min(self._pause_s * random.uniform(0.5, 1.0), left_s)
        self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._closing.wait(pause_s)
