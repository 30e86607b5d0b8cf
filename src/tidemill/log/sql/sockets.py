"""What a connection tells without being asked."""

from __future__ import annotations

import select


def is_readable(descriptor: int) -> bool:
    """Whether an idle connection has something to say, which can only be that it ends."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | select.POLLHUP)
    return bool(poll.poll(0))
