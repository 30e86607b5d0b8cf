"""The end of a node, for threads that wait for it and for event loops that are told."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.event import Event


class Over:
    """Comes once, and stays.

    >>> over = Over()
    >>> over.wait(0.0), over.come(), over.wait()
    (False, None, True)
    """

    def __init__(self) -> None:
        self._event = Event()
        self._listeners: list[Callable[[], None]] = []

    def come(self) -> None:
        """Let nobody wait any longer; again does no harm."""
        self._event.set()
        for listener in list(self._listeners):
            listener()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Sleep until it has come, or for so long; whether it has."""
        return self._event.wait(timeout_s)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` when it comes, in whatever thread, perhaps more than once; it must not
        wait for anything. What is returned takes it back.
        """
        self._listeners.append(listener)
        if self._event.is_set():
            listener()
        return lambda: self._listeners.remove(listener)
