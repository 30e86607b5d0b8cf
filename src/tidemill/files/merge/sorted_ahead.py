"""A window that another thread puts in order while the one before it is used up.

Sorting and copying tens of thousands of rows takes milliseconds, nearly all of them outside
Python, so that it goes on beside the pops. One thread does so for all queues of a process, for
allocators keep memory for each. Nothing is read from disk here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from tidemill.files.disk.memory import row_memory
from tidemill.files.merge.run import Run, merged

T = TypeVar("T")


class SortedAhead:
    """Rows that are wanted as one run before long."""

    def __init__(self, parts: list[tuple[Run, int, int]]) -> None:
        self._parts = parts
        self._run: Run | None = None
        self._sorting = _elsewhere(lambda: _sort(parts))

    def wait(self) -> Run:
        """The run, once it is ready; sorted here if nobody has begun to."""
        if self._run is None:
            sorting = self._sorting
            if sorting is None or sorting.cancel():
                self._run = _sort(self._parts)
            else:
                self._run = sorting.result()
        return self._run


def _sort(parts: list[tuple[Run, int, int]]) -> Run:
    run = merged(parts)[0]
    parts.clear()  # They may take as much memory as the run does, which nobody may want for long.
    return run


def release_unused() -> None:
    """Give back the memory that was sorted in: what one thread has freed may serve no other."""
    row_memory().release_unused()
    _elsewhere(row_memory().release_unused)


def _elsewhere(action: Callable[[], T]) -> Future[T] | None:
    """What the thread will have done; None where there can be no thread, or Python is ending."""
    try:
        return _worker(os.getpid()).submit(action)
    except RuntimeError:
        return None


@cache
def _worker(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001  A fork has no threads but the one that made it.
    return ThreadPoolExecutor(1, thread_name_prefix="tidemill-sort")
