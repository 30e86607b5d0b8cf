"""Waiting for one's turn, where others hold a lock.

The system can wait for the lock of a file, but not with an end; so one asks again after a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tidemill.errors import Locked

_PAUSE_S = 0.0005
_PAUSE_S_MAX = 0.02

T = TypeVar("T")


def ask_again(ask: Callable[[], T], wait_s: float) -> T:
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
        except Locked:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise
        time.sleep(min(pause_s, left_s))
        pause_s = min(2 * pause_s, _PAUSE_S_MAX)
