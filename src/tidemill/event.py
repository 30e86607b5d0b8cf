"""An event that Ctrl-C leaves as its callers expect it: one of the standard library has a lock that
Python code takes, which may be broken off with the lock taken. Whoever set it next, or waited for
it, would wait for ever.
"""

from __future__ import annotations

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
        # One at least for whoever waits, while it is set. To put and to take is done in C, where
        # nothing breaks in.
        self._tokens: SimpleQueue[None] = SimpleQueue()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Let everybody go on who waits, from now on."""
        if not self._is_set:
            # In this order: what breaks off in between is done again by the next.
            self._tokens.put(None)
            self._is_set = True

    def clear(self) -> None:
        """Let those wait who come from now on."""
        self._is_set = False
        try:
            while True:
                self._tokens.get_nowait()
        except Empty:
            pass

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set, or for so long; whether it is."""
        if self.is_set():
            return True
        try:
            self._tokens.get(timeout=timeout_s)
        except Empty:
            return self.is_set()
        finally:
            if self.is_set():
                self._tokens.put(None)  # for the next who waits
        return True
