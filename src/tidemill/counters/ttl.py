"""When a counter expires: a datetime with its zone for users, microseconds since 1970 within."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidemill.errors import InvalidInput
from tidemill.shown import shown

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)
EARLIEST_US = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _US  # that users can have
LATEST_US = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _US


def us_of(when: object) -> int:
    """A time as it is kept.

    >>> us_of(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    1000000
    """
    if not isinstance(when, datetime) or when.utcoffset() is None:
        raise InvalidInput(f"a TTL ends at a datetime with a time zone, not {shown(when)}")
    try:
        found = when.astimezone(UTC)
    except OverflowError:
        raise InvalidInput(f"{when} lies beyond the years that UTC has, 1 to 9999") from None
    return (found - _EPOCH) // _US


def datetime_of(time_us: int) -> datetime:
    """A time as users have it.

    >>> datetime_of(1_000_000).isoformat()
    '1970-01-01T00:00:01+00:00'
    """
    return _EPOCH + timedelta(microseconds=time_us)
