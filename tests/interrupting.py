"""Calls that are broken off as Ctrl-C does it, at every place where it can."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


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
