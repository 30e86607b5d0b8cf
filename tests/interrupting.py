"""Calls that are broken off as Ctrl-C does it: at every place where it can, or by real signals."""

from __future__ import annotations

import random
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

_LET_BE = 8  # one call of so many is: it tells how long one takes here
_DELAYS = (-5.0, 1.0)  # until a call is interrupted, of that time, as powers of two


def interrupted_at(
    number: int,
    call: Callable[[], object],
    *sources: str,  # of the functions that count
    is_due: Callable[[], bool] = lambda: True,  # whether they count by now
) -> bool:
    """Break a call off where Python looks for Ctrl-C: when a function of ours is entered, or one of
    C's returns to it, for the so many-th time. False if it ends before.
    """
    count = 0

    def interrupt(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and any(source in file for source in sources):
            if _is_collecting(frame):
                return
            count += is_due()
            if count == number and is_due():
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(interrupt)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return count >= number


def _is_collecting(frame: FrameType | None) -> bool:
    """Whether this is a finalizer, of anything that became garbage before: Python reports what it
    raises, and goes on.
    """
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


class Interrupts:
    """Signals that fall into calls of the main thread, by how long calls take here: a slow machine
    lets as many through as a fast one.
    """

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._calls = 0
        self._usual_s = 0.0
        self._is_armed = False
        signal.signal(signal.SIGALRM, self._ring)

    def fall_into(self, call: Callable[[], object]) -> BaseException | None:
        """What a call raised that may be interrupted. The first is let be."""
        is_let_be = self._calls % _LET_BE == 0
        self._calls += 1
        begun_s = time.monotonic()
        failure = self._during(
            call, 0.0 if is_let_be else self._usual_s * 2 ** self._draw.uniform(*_DELAYS)
        )
        if is_let_be:
            self._usual_s = time.monotonic() - begun_s
        return failure

    def _ring(self, *_: object) -> None:
        if self._is_armed:
            self._is_armed = False
            raise KeyboardInterrupt

    def _during(self, call: Callable[[], object], delay_s: float) -> BaseException | None:
        """What a call raised that is interrupted after so long, unless it is done before; after 0
        it is let be.
        """
        failure: BaseException | None = None
        try:
            try:
                self._is_armed = True
                signal.setitimer(signal.ITIMER_REAL, delay_s)
                call()
                self._is_armed = False
            except BaseException as raised:  # noqa: BLE001 (an interrupt as well)
                failure = raised
                self._is_armed = False
        except KeyboardInterrupt as raised:
            # Between the call and the line behind it.
            failure = failure or raised
        self._is_armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        return failure
