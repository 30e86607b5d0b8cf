"""Which rows are replayed: what makes no sense is told."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from tidemill.errors import InvalidInput
from tidemill.spark.address import Address
from tidemill.spark.replaying.choice import Choice

LOG = Address("/srv/orders", "log")


def test_times_are_compared_as_moments_also_in_the_hour_that_is_there_twice() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    first = datetime(2026, 10, 25, 2, 40, tzinfo=berlin, fold=0)
    later = datetime(2026, 10, 25, 2, 20, tzinfo=berlin, fold=1)
    assert Choice(source=LOG, times=(first, later)).checked().has_end
    with pytest.raises(InvalidInput, match="no row lies between"):
        Choice(source=LOG, times=(later, first)).checked()
