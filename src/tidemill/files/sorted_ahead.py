"""A window that another thread puts in order while the one before it is used up.

Sorting and copying tens of thousands of rows takes milliseconds, nearly all of them outside
Python, so that it goes on beside the pops. One thread does so for all queues of a process, for
allocators keep memory for each. Nothing is read from disk here.
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache

import pyarrow as pa

from tidemill.files.run import Run, merged


class SortedAhead:
    """Rows that are wanted as one run before long."""

    def __init__(self, parts: list[tuple[Run, int, int]]) -> None:
        self._parts = parts
        self._run: Future[Run] | None = None
        try:
            self._run = _worker(os.getpid()).submit(_sort, parts)
        except RuntimeError:
            pass  # There can be no more threads, or Python is about to end: it is sorted later.

    def wait(self) -> Run:
        """The run, once it is ready; sorted here if nobody has begun to."""
        if self._run is None or self._run.cancel():
            return _sort(self._parts)
        return self._run.result()


def _sort(parts: list[tuple[Run, int, int]]) -> Run:
    run = merged(parts)[0]
    parts.clear()  # They may take as much memory as the run does, which nobody may want for long.
    return run


def release_unused() -> None:
    """Give back the memory that was sorted in: what one thread has freed serves no other."""
    pa.default_memory_pool().release_unused()
    try:
        _worker(os.getpid()).submit(pa.default_memory_pool().release_unused)
    except RuntimeError:
        pass  # There is no such thread.


@cache
def _worker(pid: int) -> ThreadPoolExecutor:  # noqa: ARG001  A fork has no threads but the one that made it.
    return ThreadPoolExecutor(1, thread_name_prefix="tidemill-sort")
