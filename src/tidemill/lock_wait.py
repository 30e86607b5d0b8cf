"""Waiting for one's turn, where others hold a lock.

The system can wait for the lock of a file, but not with an end; so one asks again after a pause.
Whoever made the call in another thread may end the wait as well: nothing is lost by that.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from tidemill.errors import Locked

_PAUSE_S = 0.0005
_PAUSE_S_MAX = 0.02

T = TypeVar("T")


class _Here(threading.local):
    """What waits in this thread."""

    is_over: Callable[[], bool] | None = None


_here = _Here()


class GivenUp(Locked):
    """Whoever waited for a lock was told to wait no longer."""


def giving_up(is_over: Callable[[], bool], call: Callable[[], T]) -> T:
    """Make a call in which this thread waits for locks, until something is so: then `GivenUp`.

    >>> def ask():
    ...     raise Locked("somebody has it")
    >>> giving_up(lambda: True, lambda: ask_again(ask, 10))
    Traceback (most recent call last):
    tidemill.lock_wait.GivenUp: somebody has it
    """
    _here.is_over = is_over
    try:
        return call()
    finally:
        _here.is_over = None


def ask_again(
    ask: Callable[[], T], wait_s: float, pause: Callable[[float], object] | None = None
) -> T:
    """What `ask` returns once it no longer raises `Locked`, which it may do for so long.

    >>> answers = iter([Locked("somebody has it"), "ours"])
    >>> def ask():
    ...     answer = next(answers)
    ...     if isinstance(answer, Locked):
    ...         raise answer
    ...     return answer
    >>> ask_again(ask, 10)
    'ours'
    """
    deadline_s, pause_s = time.monotonic() + wait_s, _PAUSE_S
    while True:
        try:
            return ask()
        except Locked as error:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise
            if _here.is_over is not None and _here.is_over():
                raise GivenUp(str(error), pid=error.pid) from error
        (pause or time.sleep)(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
