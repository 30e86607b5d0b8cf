"""Tests that are coroutines: each runs in an event loop of its own, and ends in time."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, ParamSpec

from tests.files.counting_fs import CountingFileSystem

P = ParamSpec("P")

WITHIN_S = 120  # long enough for any machine; nothing waits for it when all is well


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test to its end, and see that it leaves no thread of ours behind."""

    @functools.wraps(test)
    def run(*args: P.args, **options: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **options), WITHIN_S))
        assert threads_of_ours() == []

    return run


def threads_of_ours() -> list[str]:
    """The names of the threads that queues have for asyncio."""
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith("tidemill-aio")]


async def until(is_so: Callable[[], bool]) -> None:
    """Let the event loop run until something is so; the test's own time limit bounds it."""
    while not is_so():
        await asyncio.sleep(0)


@contextmanager
def held_up(fs: CountingFileSystem) -> Iterator[None]:
    """Syncs that begin in the block end with it."""
    fs.sync_began.clear()
    fs.may_sync.clear()
    try:
        yield
    finally:
        fs.may_sync.set()
