"""How threads of ours are started."""

from __future__ import annotations

import sys
import threading

from tidemill.errors import SurroundingsError


def start(thread: threading.Thread) -> None:
    """Start a thread, or raise why there can be none.

    >>> thread = threading.Thread(target=print, args=["started"])
    >>> start(thread); thread.join()
    started
    """
    handled = sys.exception()  # by whoever calls this, and no business of ours
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ not in (None, handled):
            # The standard library was interrupted while it waited, and stumbled over its own lock.
            raise error.__context__ from None
        raise SurroundingsError(
            f"no thread can be started for {thread.name}: {error}; allow more threads, or end some"
        ) from error
