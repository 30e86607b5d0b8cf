"""The throttle: how long a lane waits for its turn."""

from __future__ import annotations

import threading

import pytest

from tests.files.fake_clock import FakeClock
from tidemill.log.sql.throttle import Throttle


@pytest.mark.parametrize("rate", [1e-12, 5e-324])
def test_a_lane_waits_no_longer_than_a_thread_can(rate: float) -> None:
    throttle = Throttle(rate, lanes=1, clock=FakeClock())
    throttle.wrote(0)
    assert 1e9 <= throttle.turn_s(0) < threading.TIMEOUT_MAX
