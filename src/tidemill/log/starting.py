"""How threads of ours are started."""

from __future__ import annotations

import threading

from tidemill.errors import SurroundingsError


def start(thread: threading.Thread) -> None:
    """Start a thread, or raise why there can be none.

    >>> thread = threading.Thread(target=print, args=["started"])
    >>> start(thread); thread.join()
    started
    """
    try:
        thread.start()
    except RuntimeError as error:
        if error.__context__ is not None:
            # The standard library was interrupted while it waited, and stumbled over its own lock.
            raise error.__context__ from None
        raise SurroundingsError(
            f"no thread can be started for {thread.name}: {error}; allow more threads, or end some"
        ) from error
