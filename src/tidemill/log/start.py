"""Where to start in a log: its ends, the number of a row, or a time."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

from tidemill.errors import InvalidInput
from tidemill.limits import INT64_MAX
from tidemill.log.contract import LogStore
from tidemill.shown import shown

Start = Literal["earliest", "latest"] | int | datetime


def start_seq(store: LogStore, start: Start) -> int:
    """The number of the row at which to start."""
    if start == "earliest":
        return store.ends().first
    if start == "latest":
        return store.ends().next
    found = row_at(store, start, "start")
    if found is not None:
        return found
    raise InvalidInput(
        f"start is 'earliest', 'latest', the number of a row, or a datetime; not {shown(start)}"
    )


def row_at(store: LogStore, place: object, what: str) -> int | None:
    """The number of a row, or that of the first row from a time on; None for anything else."""
    if isinstance(place, datetime):
        if place.tzinfo is None:
            raise InvalidInput(f"{what} has no time zone: datetime.now(timezone.utc), for example")
        since = place - datetime(1970, 1, 1, tzinfo=UTC)
        return store.seq_at(
            since.days * 86_400_000_000 + since.seconds * 10**6 + since.microseconds
        )
    if isinstance(place, int) and not isinstance(place, bool) and place >= 1:
        return min(place, INT64_MAX)  # No store counts further, and no row comes so far.
    return None
