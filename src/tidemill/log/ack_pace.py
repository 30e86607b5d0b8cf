"""When a receiver's pointer is stored: soon after an ack, but not again at once.

Each time is a commit, which takes the disk from those who send. So acks gather for a moment, unless
somebody waits for them. The caller holds the receiver's lock around each call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.clock import Clock

STORE_S = 0.01  # from one time to the next


class AckPace:
    """What the thread that stores a pointer waits for.

    >>> from tidemill.clock import SystemClock
    >>> pace = AckPace(threading.RLock(), SystemClock())
    >>> with pace._acked:
    ...     pace.pause()  # The first time is at once.
    """

    def __init__(self, mutex: threading.RLock, clock: Clock) -> None:
        self._acked = threading.Condition(mutex)
        self._clock = clock
        self._hurries = 0  # how many wait for the pointer to be stored
        self._stored_s = float("-inf")
        self._is_pausing = False

    def acked(self) -> None:
        """The pointer has moved."""
        if not self._is_pausing:
            self._acked.notify()

    @contextmanager
    def hurried(self) -> Iterator[None]:
        """Do not let acks gather meanwhile."""
        self.hurry()
        try:
            yield
        finally:
            self._hurries -= 1

    def hurry(self) -> None:
        """Do not let acks gather any more."""
        self._hurries += 1
        self._acked.notify_all()

    def wait(self) -> None:
        """Wait until the pointer has moved, or somebody is in a hurry."""
        self._acked.wait()

    def pause(self) -> None:
        """Wait until it is time to store the pointer, which is now."""
        until_s = self._stored_s + STORE_S
        self._is_pausing = True
        while not self._hurries:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                break
            self._clock.wait(self._acked, left_s)
        self._is_pausing = False
        self._stored_s = self._clock.monotonic_s()
