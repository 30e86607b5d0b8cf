"""A thread that is started once, also if Ctrl-C came while it was."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tidemill.errors import Bug, TidemillError
from tidemill.log.starting import start


class OwnThread:
    """Started when it is first needed. Whoever was interrupted in starting it does not know whether
    it runs, so that the next one starts another; of two, the first to run has the work.

    >>> thread = OwnThread(threading.RLock(), "worker")
    >>> thread.start(lambda: print("works")); thread.join()
    works
    """

    def __init__(self, mutex: threading.RLock, name: str) -> None:
        self._mutex = mutex
        self._name = name
        self._thread: threading.Thread | None = None
        self._runs = False  # or has run
        self._works = threading.Lock()  # held until it has ended
        self._works.acquire()

    def start(self, target: Callable[[], None]) -> None:
        """Have it run. Called under the lock."""
        if self._thread is not None:
            return
        # A daemon, so that what was never closed does not keep the process alive.
        thread = threading.Thread(target=self._run, args=[target], name=self._name, daemon=True)
        self._thread = thread
        try:
            start(thread)
        except BaseException:
            self._thread = None
            raise

    def join(self) -> None:
        """Return when it has ended; at once if it was never started, or is this very thread."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        # Of a thread whose `join` was interrupted, the standard library believes that it has ended.
        with self._works:
            pass
        thread.join()

    def _run(self, target: Callable[[], None]) -> None:
        with self._mutex:
            if self._runs:
                return
            self._runs, self._thread = True, threading.current_thread()
        try:
            target()
        finally:
            self._works.release()


def failure_of(step: Callable[[], bool]) -> TidemillError | None:
    """Go on until `step` says that it is over; returns what stopped it otherwise, for whoever waits
    for this thread must hear of it.

    >>> failure_of(lambda: bool([][0]))
    Bug("the thread 'MainThread' died: IndexError('list index out of range')")
    """
    try:
        while step():
            pass
    except TidemillError as error:
        return error
    except Exception as error:  # noqa: BLE001 (it is told, by whoever looks at the failure)
        failure = Bug(f"the thread {threading.current_thread().name!r} died: {error!r}")
        failure.__cause__ = error
        return failure
    return None
