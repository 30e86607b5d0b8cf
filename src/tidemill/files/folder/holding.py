"""Holding many locks at once, whatever interrupts taking them or letting them go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def holding(more: Callable[[], list[Any]]) -> Iterator[None]:
    """Within it this thread holds all locks that `more` names, which is asked until it names no
    others. They are locks that a thread can take again, and none of them is taken before.
    """
    held: list[Any] = []
    try:
        while locks := more():
            for lock in locks:
                # Noted first, for an interrupt may come as soon as it is taken.
                held.append(lock)
                lock.acquire()
        yield
    finally:
        try:
            _let_go(held)
        except BaseException:
            # An interrupt here as well: nobody may wait for the rest of them for ever.
            _let_go(held)
            raise


def is_mine(lock: Any) -> bool:
    """Whether this thread holds a lock that it could take again."""
    return bool(lock._is_owned())


def _let_go(locks: list[Any]) -> None:
    for lock in locks:
        if is_mine(lock):
            lock.release()
