"""Appends on PostgreSQL where they differ: one statement, locks that are held, rows of any size."""

from __future__ import annotations

import threading
import time

import pytest

import tidemill as tm
from tests.log.contract.writing import append, frames_of, read_all
from tests.log.sql.packet_faults import TIMEOUT_S
from tests.services.postgres import Postgres
from tests.services.tcp_proxy import Fault, TcpProxy
from tidemill.errors import Fenced
from tidemill.log.contract import Mark
from tidemill.log.sql import connection as connecting
from tidemill.log.sql.rows import pack_rows
from tidemill.log.sql.store import ServerLog

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("epoch_less", "pointer_more"), [(1, 0), (0, 1)])
def test_a_row_is_not_written_if_its_pointer_is_not_moved(
    url: str, epoch_less: int, pointer_more: int
) -> None:
    with ServerLog(url, parallelism=1) as store:
        append(store.claim(), [b"a"])
        writer = store.claim()
        numbers = writer.reserve(1)
        (row,) = pack_rows(frames_of([b"b"]), numbers.first, 1, bytes_max=10**6)
        numbers.first += pointer_more
        epoch = writer.epoch - epoch_less

        def write(connection: connecting.Connection) -> None:
            connection.write_and_show_row(store.statements, 0, row, numbers, epoch)

        with pytest.raises(connecting.Overtaken):
            store.run(write)
        table = store.statements.shards[0]
        assert store.run(lambda connection: connection.query(f"SELECT first FROM {table}")) == [
            (1,)
        ]


def test_a_lock_that_is_held_for_long_delays_an_append_and_no_more(
    postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOCK_WAIT_S", 0.1)
    with ServerLog(url, parallelism=1) as store:
        writer = store.claim()
        append(writer, [b"a"])
        pointers = store.statements.shards[0].replace("_001_0000", "_pointers")
        with postgres.connect() as other:
            other.execute("BEGIN")
            other.execute(f"SELECT 1 FROM {pointers} FOR UPDATE")
            late = threading.Thread(target=append, args=(writer, [b"b"]))
            late.start()
            late.join(0.5)
            assert late.is_alive()
            assert read_all(store) == [b"a"]
            other.execute("ROLLBACK")
            late.join(30)
        assert read_all(store) == [b"a", b"b"]


def test_a_publisher_that_went_silent_in_a_transaction_is_taken_over_at_once(
    postgres: Postgres, url: str
) -> None:
    """Its locks would otherwise be held until the server notices, for many seconds."""
    with TcpProxy(postgres.port, "postgres") as proxy:
        through = url.replace(str(postgres.port), str(proxy.port))
        # It waits for its answer until the end: one that gave up on a slow commit would need more
        # packets where they are counted, and not come to the fault behind that.
        silent = ServerLog(through, parallelism=1)
        old = silent.claim()
        append(old, [b"a"], [Mark("loader", 1, 0, 0)])
        proxy.arm(None)
        append(old, [b"b"], [Mark("loader", 2, 0, 0)])
        # In the middle of the transaction: the row is written, and its epoch locked.
        proxy.arm(Fault(proxy.packets // 2, "blackhole", everyone=True))
        proxy.refuse(True)

        def fail() -> None:
            with pytest.raises(Fenced):
                append(old, [b"x"], [Mark("loader", 3, 0, 0)])

        failed = threading.Thread(target=fail)
        failed.start()
        proxy.wait_fired(failed.is_alive)
        with ServerLog(url) as store:
            began_s = time.monotonic()
            new = store.claim()
            assert time.monotonic() - began_s < connecting.IDLE_S / 2
            append(new, [b"c"])
            assert read_all(store) == [b"a", b"b", b"c"]
        proxy.refuse(False)
        proxy.cut_all()
        failed.join()
        silent.close()


def test_a_server_that_falls_silent_is_not_waited_for_without_end(
    postgres: Postgres, url: str
) -> None:
    with TcpProxy(postgres.port, "postgres") as proxy:
        through = url.replace(str(postgres.port), str(proxy.port))
        with ServerLog(f"{through}?timeout_s={TIMEOUT_S}") as store:
            writer = store.claim()
            append(writer, [b"a"])
            proxy.arm(Fault(0, "blackhole"))
            began_s = time.monotonic()
            assert read_all(store) == [b"a"]
            assert TIMEOUT_S <= time.monotonic() - began_s < 10
            assert proxy.fired is not None


def test_a_large_row_is_written_as_it_is(url: str) -> None:
    large = bytes(range(256)) * (80 << 10)  # 20 MiB
    with tm.Log(url) as log, log.publisher() as out:
        out.send([b"a", large])
        out.send([b"b"])
        assert log.read(1, rows_max=3).rows() == [b"a", large, b"b"]


def test_sessions_end_by_themselves_when_they_are_idle_for_long(
    postgres: Postgres, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that nobody who vanished holds a lock, wherever the network failed."""
    monkeypatch.setattr(connecting, "IDLE_S", 0.2)
    with ServerLog(url, parallelism=1) as store:
        writer = store.claim()
        append(writer, [b"a"])
        deadline = time.monotonic() + 60
        while postgres.execute(
            "SELECT 1 FROM pg_stat_activity WHERE application_name LIKE 'tidemill-%%' "
            "AND query LIKE %s",
            f"%{url.rpartition('/')[2]}%",
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        append(writer, [b"b"])
        assert read_all(store) == [b"a", b"b"]
