"""Milliseconds that a node is to wait, checked where they come in.

Threads wait for some 292 years at most, and one that were told more would end in the middle of
its work, and nobody would hear of it.
"""

from __future__ import annotations

from tidemill.errors import InvalidInput
from tidemill.limits import COUNTER_INTERVAL_MS_MAX
from tidemill.shown import shown


def check_interval_ms(what: str, number: object) -> None:
    """Raise `InvalidInput` unless this is a whole number from 1 to about a year.

    >>> check_interval_ms("sync_ms", 2_000)
    """
    if type(number) is not int or not 1 <= number <= COUNTER_INTERVAL_MS_MAX:
        raise InvalidInput(
            f"{what} is a whole number from 1 to {COUNTER_INTERVAL_MS_MAX:,}, not {shown(number)}"
        )
