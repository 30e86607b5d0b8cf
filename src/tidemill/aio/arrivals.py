"""Waiting for something to change in a queue, without a thread for each wait.

Whoever commits an operation, in whatever thread, calls `changed`. If anybody waits, the event loop
is told, once however many operations follow before it comes to look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from tidemill.aio.calling import call_in


class Arrivals:
    """The waits of one queue on its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waits: set[Wait] = set()
        self._is_told = False

    @contextmanager
    def wait(self) -> Iterator[Wait]:
        """Begin before looking at the queue: then nothing that comes after the look is missed."""
        wait = Wait(self._loop)
        self._waits.add(wait)
        try:
            yield wait
        finally:
            self._waits.discard(wait)

    def changed(self) -> None:
        """Something was written, or the queue was closed. Any thread may call this."""
        if not self._waits or self._is_told:
            return
        self._is_told = True
        call_in(self._loop, self.wake)

    def wake(self) -> None:
        """Let every wait look again."""
        # First, so that a change from here on is told anew.
        self._is_told = False
        for wait in self._waits:
            wait.wake()


class Wait:
    """One wait: it sleeps until something changed since it last looked, or its time is up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    def look(self) -> None:
        """What has changed so far is about to be seen."""
        self._woken.clear()

    async def sleep(self, seconds: float) -> None:
        if seconds == float("inf"):
            await self._woken.wait()
            return
        alarm = self._loop.call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            alarm.cancel()
