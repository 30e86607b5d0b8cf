"""Where to start in a log: at a number, a time, or one of its ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from tidemill.errors import InvalidInput
from tidemill.log.contract import LogStore

Start = Literal["earliest", "latest"] | int | datetime


def start_seq(store: LogStore, start: Start) -> int:
    """The number of the row at which to start."""
    if start == "earliest":
        return store.ends().first
    if start == "latest":
        return store.ends().next
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise InvalidInput("start has no time zone: datetime.now(timezone.utc), for example")
        since = start - datetime(1970, 1, 1, tzinfo=UTC)
        return store.seq_at(
            since.days * 86_400_000_000 + since.seconds * 10**6 + since.microseconds
        )
    if isinstance(start, int) and not isinstance(start, bool) and start >= 1:
        return start
    raise InvalidInput(
        f"start is 'earliest', 'latest', the number of a row, or a datetime; not {start!r}"
    )
