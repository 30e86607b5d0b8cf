"""Ctrl-C between steps, never within one: what was pushed is then known exactly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """While its block is open, an interrupt that comes within `held` waits for its end.

    >>> with Interrupts() as interrupts:
    ...     with interrupts.held():
    ...         done = True
    """

    def __init__(self) -> None:
        self._is_held = False
        self._is_pending = False

    @contextmanager
    def held(self) -> Iterator[None]:
        """A step that is to be finished, or not begun."""
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        if self._is_pending:
            raise KeyboardInterrupt

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if not self._is_held or self._is_pending:
            # The second Ctrl-C is meant: whoever presses it does not want to wait.
            raise KeyboardInterrupt
        self._is_pending = True

    def __enter__(self) -> Interrupts:
        self._is_main = threading.current_thread() is threading.main_thread()
        if self._is_main:
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_main:
            signal.signal(signal.SIGINT, self._before)
