"""Relays that follow one that was killed."""

from __future__ import annotations

import time

import tidemill as tm
from tidemill.log.mysql.relay import Relay

_WITHIN_S = 60.0


def relay_after_a_kill(url: str, log: str) -> Relay:
    """The relay of the outbox at `url`, once the one that was killed before is quite gone: its lock
    is held until the server has come to the end of what its connection asked for.
    """
    deadline_s = time.monotonic() + _WITHIN_S
    while True:
        try:
            return tm.Outbox(url).relay(log)
        except tm.Locked:
            # Each try has waited for the lock by itself.
            if time.monotonic() > deadline_s:
                raise
