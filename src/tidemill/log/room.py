"""Room for what is on its way, in bytes. Who waits for it is let in before those who come later, or
a large send would be passed by small ones for as long as there are any.
"""

from __future__ import annotations

import threading

from tidemill.log.sends import Send


class Room:
    """The caller holds the lock of the condition around each call.

    >>> changed = threading.Condition()
    >>> room = Room(changed, 100)
    >>> small, large = Send(values=(b"a",)), Send(values=(bytes(200),))
    >>> room.is_for(small, 20), room.is_for(large, 20), room.is_for(large, 0)
    (True, False, True)
    >>> room.ask(large); room.is_for(small, 20)
    False
    >>> with changed:
    ...     room.leave(large)
    >>> room.is_for(small, 20)
    True
    """

    def __init__(self, changed: threading.Condition, bytes_max: int) -> None:
        self._changed = changed
        self._bytes_max = bytes_max
        self._next: Send | None = None  # who waits, and is let in before all others

    def is_for(self, send: Send, under_way: int) -> bool:
        """Whether a send may come to so many bytes; one that is larger than all, if it is alone."""
        if self._next not in (None, send):
            return False
        return under_way == 0 or under_way + send.size <= self._bytes_max

    def ask(self, send: Send) -> None:
        """A send waits for room."""
        self._next = self._next or send

    def leave(self, send: Send) -> None:
        """A send does not wait any more. Done twice, it does no more than once."""
        if self._next is send:
            self._next = None
            self._changed.notify_all()
