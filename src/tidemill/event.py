"""An event that Ctrl-C leaves as its callers expect it: one of the standard library has a lock that
Python code takes, which may be broken off with the lock taken. Whoever set it next, or waited for
it, would wait for ever.
"""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue


class Event:
    """Set by any thread, and waited for by any.

    >>> event = Event()
    >>> event.wait(0), event.set(), event.wait(), event.is_set()
    (False, None, True, True)
    >>> event.clear()
    >>> event.wait(0)
    False
    """

    def __init__(self) -> None:
        self._is_set = False
        # One at least, or on its way from one who waits to the next, while it is set. To put and to
        # take is done in C, where nothing breaks in.
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Let everybody go on who waits, from now on."""
        # In this order, or who is woken at once would not know that others are to be, too. What
        # breaks off in between is done by the next who sets it.
        self._is_set = True
        if self._tokens.empty():
            self._tokens.put(None)

    def clear(self) -> None:
        """Let those wait who come from now on."""
        self._is_set = False
        try:
            while True:
                self._tokens.get_nowait()
        except Empty:
            pass  # None is left, or one who waits has it, and does not put it back.

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, or for so long; whether it is."""
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.is_set():
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            try:
                self._tokens.get(timeout=left_s)
            except Empty:
                return self.is_set()
            finally:
                if self.is_set():
                    self._tokens.put(None)  # for the next who waits
        return True
