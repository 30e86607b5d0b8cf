"""Syncs what was pushed while the next rows are being read, so that disk and processor both work:

    read and push    1     2     3     4
    sync                 ──1── ──2── ──3── ──4──
                                                 then, and only then, it is reported

What is not synced yet is not reported. One batch at most waits for its sync when the next goes in.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor


class SyncBehind:
    """Calls `sync` in a thread of its own, once for each `begin`.

    >>> synced = []
    >>> behind = SyncBehind(lambda: synced.append("all up to here"))
    >>> behind.begin()
    >>> behind.finish()
    >>> behind.close()
    >>> synced
    ['all up to here']
    """

    def __init__(self, sync: Callable[[], None]) -> None:
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tidemill-sync")
        self._running: Future[None] | None = None

    def begin(self) -> None:
        """Wait for the sync before, and begin one of all that was pushed until now."""
        self.finish()
        self._running = self._thread.submit(self._sync)

    def finish(self) -> None:
        """Wait for the sync that was begun last; raises what it raised, once."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def close(self) -> None:
        """Wait for the thread to end, whatever it has to say."""
        self._thread.shutdown()
