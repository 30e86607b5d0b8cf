"""Trying again: with pauses that grow, and not for ever."""

from __future__ import annotations

import threading
import time
from functools import partial
from itertools import count

import pytest

from tests.interrupting import interrupted_at
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import TcpProxy
from tidemill.errors import Unavailable
from tidemill.log.sql import patience as waiting
from tidemill.log.sql.address import Address
from tidemill.log.sql.patience import Patience
from tidemill.log.sql.pool import Pool
from tidemill.log.sql.store import ServerLog


class Closing(threading.Event):
    """Notes how long it was waited for, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits_s: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.waits_s.append(timeout)
        return False


def test_an_interrupt_of_a_pause_keeps_nobody_from_closing() -> None:
    address = Address.parse("mysql://app@127.0.0.1/shop/orders")
    for number in count(1):
        pool = Pool(address, 600.0)
        pause = partial(Patience(600.0, pool.closing).pause, ValueError("away"))
        is_broken_off = interrupted_at(number, pause, "threading.py", "event.py")
        closing = threading.Thread(target=pool.close, daemon=True)
        closing.start()
        closing.join(30)
        assert not closing.is_alive(), f"it waits for ever after interrupt {number}"
        if not is_broken_off:
            assert number > 1
            return


def test_pauses_grow_up_to_a_bound() -> None:
    closing = Closing()
    patience = Patience(600.0, closing)
    for _ in range(20):
        patience.pause(ValueError("away"))
    expected_s = [min(waiting.PAUSE_S_MIN * 2**number, waiting.PAUSE_S_MAX) for number in range(20)]
    for waited_s, most_s in zip(closing.waits_s, expected_s, strict=True):
        assert most_s / 2 <= waited_s <= most_s
    # Clients that were cut off together do not come back together.
    assert len(set(closing.waits_s)) > 10


def test_a_server_that_is_away_is_not_asked_without_a_pause(
    mariadb: MariaDB, database: str
) -> None:
    """The original tries again as fast as it can."""
    with TcpProxy(mariadb.port) as proxy:
        url = mariadb.url(database, "log", port=proxy.port)
        with ServerLog(url, parallelism=1, retry_s=2) as store:
            proxy.refuse(True)
            proxy.cut_all()
            before, began_s = proxy.refused, time.monotonic()
            with pytest.raises(Unavailable, match="gave up after 2 s"):
                store.ends()
            assert 1.9 < time.monotonic() - began_s < 30
            assert 2 <= proxy.refused - before <= 20
