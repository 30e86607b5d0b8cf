"""The end of the interpreter: what is under way then is seen through. Sends that were left to a
future are written, and acks are stored, also of publishers and receivers that were never closed.

Threads of ours are daemons, which end without a word; so this is done before they do.
"""

from __future__ import annotations

import atexit
import logging
import weakref
from typing import Protocol

from tidemill.errors import TidemillError

logger = logging.getLogger(__name__)


class Unfinished(Protocol):
    """Something that may have work under way."""

    def see_through(self) -> None:
        """Return once nothing is; at once in a process that has but a copy of it."""


_open: weakref.WeakSet[Unfinished] = weakref.WeakSet()


def see_through_at_exit(one: Unfinished) -> None:
    """Have it seen through if it still exists when the interpreter ends."""
    _open.add(one)


@atexit.register
def _see_through() -> None:
    for one in list(_open):
        try:
            one.see_through()
        except TidemillError as error:
            logger.warning("what was under way at the end of the program failed: %s", error)
