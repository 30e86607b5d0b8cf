"""Ctrl-C and SIGTERM between steps, never within one: what was done is then known exactly."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


class Terminated(KeyboardInterrupt):
    """SIGTERM: what `kill`, `timeout` and a service manager send to end a command."""


class Interrupts:
    """While its block is open, an interrupt that comes within `held` waits for its end.

    >>> with Interrupts() as interrupts:
    ...     with interrupts.held():
    ...         done = True
    """

    def __init__(self) -> None:
        self._is_held = False
        self._pending: KeyboardInterrupt | None = None
        self.is_forced = False  # whether it came again, and broke into a step

    @contextmanager
    def held(self) -> Iterator[None]:
        """A step that is to be finished, or not begun."""
        self.check()
        self._is_held = True
        try:
            yield
        finally:
            self._is_held = False
        self.check()

    def check(self) -> None:
        """Raise an interrupt that has come: here, a step may end."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            raise pending

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        interrupt = Terminated() if number == signal.SIGTERM else KeyboardInterrupt()
        if not self._is_held:
            raise interrupt
        if self._pending is not None:
            # The second is meant: whoever presses Ctrl-C again does not want to wait.
            self.is_forced = True
            raise interrupt
        self._pending = interrupt

    def __enter__(self) -> Interrupts:
        # Python lets nobody but the main thread handle signals.
        signals = (
            (signal.SIGINT, signal.SIGTERM)
            if threading.current_thread() is threading.main_thread()
            else ()
        )
        self._before = [(number, signal.signal(number, self._handle)) for number in signals]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before:
            signal.signal(number, handler)
