"""The process that a handle belongs to. `os.fork()` copies handles, but not the threads that serve
them, and locks as they were held at that moment; so a copy is not used, and is asked nothing that
needs a lock.
"""

from __future__ import annotations

import os

from tidemill.errors import Closed


class Home:
    """Where a handle was opened.

    >>> home = Home("the publisher")
    >>> home.check(); home.is_here
    True
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._pid = os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether this is still the process that opened it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Raise `Closed` in a process that has a copy. Called before any lock is taken."""
        if os.getpid() != self._pid:
            raise Closed(
                f"{self._what} was opened by process {self._pid} before os.fork(); open a new one"
            )
