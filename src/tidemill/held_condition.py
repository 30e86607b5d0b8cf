"""A condition that Ctrl-C leaves as its callers expect it: with its lock held behind every wait.

One of the standard library may be broken off between giving its lock back and taking it again; then
the block around it gives back what it does not hold. Its own `with` is Python code, which may be
broken off with the lock held and no block to leave. So what is taken here is the lock itself, with
`with`, which nothing can break off.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

logger = logging.getLogger(__name__)


class HeldCondition(threading.Condition):
    """Made with the lock that its callers take: one that knows by whom it is held.

    >>> mutex = threading.RLock()
    >>> changed = HeldCondition(mutex)
    >>> with mutex:
    ...     changed.wait(0)
    False
    """

    def __init__(self, mutex: threading.RLock) -> None:
        super().__init__(mutex)
        self._mutex: Any = mutex

    def wait(self, timeout: float | None = None) -> bool:
        try:
            return super().wait(timeout)
        except BaseException:
            self._hold()
            raise

    def _hold(self) -> None:
        """Take the lock, unless this thread has it."""
        while True:
            try:
                if self._mutex._is_owned():
                    return
                self._mutex.acquire()
            except BaseException as again:  # noqa: BLE001
                # One more interrupt changes nothing; the first one is on its way.
                logger.debug("interrupted again, while a lock is taken: %r", again)
