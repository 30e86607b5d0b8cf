"""Telling an event loop, from whatever thread, that something has happened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


def call_in(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Have a loop call this soon; nothing if the loop is gone, and with it whoever waited.

    >>> loop = asyncio.new_event_loop()
    >>> call_in(loop, loop.stop); loop.run_forever()
    >>> loop.close()
    >>> call_in(loop, loop.stop)
    """
    try:
        loop.call_soon_threadsafe(callback)
    except RuntimeError:
        # Asked before, it might be closed behind the answer.
        if not loop.is_closed():
            raise
