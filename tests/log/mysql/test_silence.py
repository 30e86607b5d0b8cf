"""Connections that fall silent in the middle of a transaction: their locks are in nobody's way."""

from __future__ import annotations

import threading
import time

import pytest

from tests.log.contract.writing import append, read_all
from tests.log.sql.packet_faults import TIMEOUT_S
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import Fault, TcpProxy
from tidemill.errors import Fenced
from tidemill.log.sql.connection import IDLE_S
from tidemill.log.sql.store import ServerLog

# What a client that vanished has locked stays so for twice as long, unless its connection is ended.
LOCKS_HELD_S = IDLE_S / 2


def test_a_publisher_that_went_silent_in_a_transaction_is_taken_over_at_once(
    mariadb: MariaDB, database: str, proxy: TcpProxy
) -> None:
    """Its locks would otherwise be held until the server notices, for many seconds."""
    # It waits for its answer until the end: one that gave up earlier would not come to the fault.
    through = ServerLog(mariadb.url(database, "log", port=proxy.port), parallelism=1)
    old = through.claim()
    append(old, [b"a"])
    proxy.arm(Fault(2, "blackhole", everyone=True))  # after its row, before its pointer
    proxy.refuse(True)

    def fail() -> None:
        with pytest.raises(Fenced):
            append(old, [b"x"])

    failed = threading.Thread(target=fail)
    failed.start()
    proxy.wait_fired(failed.is_alive)
    with ServerLog(mariadb.url(database, "log")) as store:
        began_s = time.monotonic()
        new = store.claim()
        assert time.monotonic() - began_s < LOCKS_HELD_S
        append(new, [b"b"])
        assert read_all(store) == [b"a", b"b"]
    proxy.refuse(False)
    proxy.cut_all()
    failed.join()
    through.close()


def test_a_call_that_went_silent_in_a_transaction_is_repeated_at_once(
    mariadb: MariaDB, database: str, proxy: TcpProxy
) -> None:
    """Or it would wait for its own locks."""
    url = mariadb.url(database, "log", port=proxy.port) + f"?timeout_s={TIMEOUT_S}"
    with ServerLog(url, parallelism=1) as store:
        while True:
            store.claim_consumer("billing", start=1)
            # BEGIN and its answer; a SELECT and its row, in five; an UPDATE, whose lock is held
            # then.
            proxy.arm(Fault(2 + 6 + 2, "blackhole"))
            began_s = time.monotonic()
            claim = store.claim_consumer("billing", start=1)
            took_s = time.monotonic() - began_s
            assert proxy.fired is not None
            if not proxy.fired.accepted:
                break
            # An answer came too late, and the fault fell into the call that repeats this one.
        assert TIMEOUT_S <= took_s < LOCKS_HELD_S
        assert proxy.fired.direction == "to server"
        assert store.consumers()["billing"].token == claim.token
