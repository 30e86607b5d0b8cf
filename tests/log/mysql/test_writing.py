"""Writing beside others: deadlocks, locks, limits, the throttle, and refusals of the server."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pymysql
import pytest

import tidemill as tm
from tests.faults.checker import UniqueValues
from tests.log.contract.writing import append, frames_of, read_all
from tests.log.sent import Sent
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import Fault, TcpProxy
from tidemill.errors import Closed, DiskFull, Fenced, InvalidInput, OutcomeUnknown, TooLarge
from tidemill.log.contract import Mark, Withdrawn
from tidemill.log.mysql.connection import MySQLConnection
from tidemill.log.sql import connection as connecting
from tidemill.log.sql import writer as writing
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import badge_of
from tidemill.log.sql.store import ServerLog

Open = Callable[..., ServerLog]


def test_many_lanes_at_once_share_no_connection(
    open_log: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads on one connection would get each other's answers; the epoch would then change,
    since the writer takes that for a broken connection.
    """
    monkeypatch.setattr(writing, "_SETTINGS_S", 0.0)
    store = open_log(parallelism=4)
    writer = store.claim()
    epoch = writer.epoch
    mutex = threading.Lock()
    sent = Sent()

    def send(lane: int) -> None:
        for _ in range(40):
            with mutex:
                number, rows = sent.attempt(2)
                numbers = writer.reserve(2)
            writer.append(lane, numbers, frames_of(rows))
            sent.confirmed(number, numbers.first)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(send, range(4)))
    assert writer.epoch == epoch
    sent.check(read_all(store))


def test_a_lock_that_takes_too_long_is_waited_for_again(
    open_log: Open, other: pymysql.cursors.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "LOCK_WAIT_S", 1)
    store = open_log(parallelism=1)
    writer = store.claim()
    other.execute("SELECT epoch FROM queue_log_epoch FOR UPDATE")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(append, writer, [b"a"])
        # Longer than the server lets it wait, so that it must have tried again.
        with pytest.raises(TimeoutError):
            sending.result(timeout=1.5)
        other.execute("ROLLBACK")
        assert sending.result(timeout=30).first == 1
    assert read_all(store) == [b"a"]


def test_a_deadlock_is_tried_again(
    mariadb: MariaDB, database: str, open_log: Open, other: pymysql.cursors.Cursor
) -> None:
    store = open_log(parallelism=1)
    writer = store.claim()
    append(writer, [b"a"])

    def deadlocks() -> int:
        rows = mariadb.execute("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")
        return int(str(rows[0][1]))

    before = deadlocks()
    mariadb.execute(f"CREATE TABLE {database}.weight (id INT PRIMARY KEY) ENGINE=InnoDB")
    # The server rolls back who has written less; so this one writes more.
    rows = ", ".join(f"({number})" for number in range(1000))
    other.execute(f"INSERT INTO weight VALUES {rows}")
    other.execute("SELECT * FROM queue_log_pointers WHERE name = '/writer' FOR UPDATE")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(append, writer, [b"b"])
        # It holds the epoch, shared, and waits for the pointer, once its row is there.
        mariadb.until_it_waits_for_a_lock(sending)
        other.execute("SELECT epoch FROM queue_log_epoch FOR UPDATE")
        other.execute("ROLLBACK")
        assert sending.result(timeout=30).first == 2
    assert deadlocks() == before + 1
    assert read_all(store) == [b"a", b"b"]


def test_a_row_whose_pointer_was_locked_for_too_long_is_there_once(
    open_log: Open, other: pymysql.cursors.Cursor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is committed without the pointer, since all was sent at once."""
    monkeypatch.setattr(connecting, "LOCK_WAIT_S", 1)
    store = open_log(parallelism=1)
    writer = store.claim()
    append(writer, [b"a"])
    epoch = writer.epoch
    other.execute("SELECT * FROM queue_log_pointers WHERE name = '/writer' FOR UPDATE")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(append, writer, [b"b", b"c"])
        while not writer._is_settling:  # Its wait for the lock has ended.
            assert not sending.done()
            time.sleep(0.001)
        assert read_all(store) == [b"a"]
        other.execute("ROLLBACK")
        assert sending.result(timeout=30).first == 2
    assert writer.epoch > epoch
    assert read_all(store) == [b"a", b"b", b"c"]


def test_the_pointer_stays_where_it_is_if_the_row_is_refused(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    store = open_log(parallelism=1)
    writer = store.claim()
    append(writer, [b"a"])
    mariadb.execute(
        f"CREATE TRIGGER {database}.full BEFORE INSERT ON {database}.queue_log_001_0000 FOR EACH "
        "ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'table is full'"
    )
    with pytest.raises(DiskFull):
        append(writer, [b"x"])
    assert store.ends().next == 2
    mariadb.execute(f"DROP TRIGGER {database}.full")
    assert append(writer, [b"b"]).first == 2
    assert read_all(store) == [b"a", b"b"]


def test_statements_sent_together_are_all_run_and_each_has_its_answer(
    mariadb: MariaDB, database: str, url: str
) -> None:
    mariadb.execute(f"CREATE TABLE {database}.t (id BIGINT PRIMARY KEY) ENGINE=InnoDB")
    insert = "INSERT INTO t SELECT ? FROM DUAL WHERE ? > 0"
    one = MySQLConnection(Address.parse(url), "badge", autocommit=False)
    answers = one.commit_together([(insert, (number, number)) for number in (7, 7, 8, 0)])
    assert [answers[index] for index in (0, 2, 3, 4)] == [1, 1, 0, 0]
    assert isinstance(answers[1], connecting.Duplicate)
    assert mariadb.execute(f"SELECT id FROM {database}.t ORDER BY id") == [(7,), (8,)]
    assert one.query("SELECT 1") == [(1,)]
    one.close()
    with pytest.raises(connecting.Lost):
        one.commit_together([(insert, (9, 9))])


@pytest.mark.parametrize("how", ["KILL", "KILL QUERY"])
def test_a_statement_that_an_operator_ends_is_tried_again(
    mariadb: MariaDB, open_log: Open, other: pymysql.cursors.Cursor, how: str
) -> None:
    store = open_log(parallelism=1)
    writer = store.claim()
    other.execute("SELECT epoch FROM queue_log_epoch FOR UPDATE")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(append, writer, [b"a"])
        mariadb.until_it_waits_for_a_lock(sending)
        ((thread,),) = mariadb.execute("SELECT IS_USED_LOCK(%s)", badge_of(writer._owner, 0))
        mariadb.execute(f"{how} {thread}")
        other.execute("ROLLBACK")
        assert sending.result(timeout=30).first == 1
    assert read_all(store) == [b"a"]


def test_frames_are_split_below_the_packet_limit_and_one_larger_row_is_refused(
    mariadb: MariaDB, url: str
) -> None:
    mariadb.execute("SET GLOBAL max_allowed_packet = 1048576")
    try:
        rows = [os.urandom(300_000) for _ in range(12)]
        with tm.Log(url, parallelism=2) as log, log.publisher() as out:
            assert out.send(rows).last == 12
            with pytest.raises(TooLarge, match="max_allowed_packet"):
                out.send([b"a", bytes(1_100_000)])
            assert out.send([b"after"]).first == 13
            assert log.read(1, rows_max=100).rows() == [*rows, b"after"]
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = 16777216")


@pytest.mark.parametrize("is_numbered", [True, False])
def test_what_no_longer_fits_a_packet_is_refused_and_nothing_else(
    mariadb: MariaDB, open_log: Open, is_numbered: bool
) -> None:
    """The limit is lowered while a publisher writes; new connections go by it."""
    store = open_log(parallelism=1)
    writer = store.claim()
    append(writer, [b"a"])
    packet = mariadb.execute("SELECT @@GLOBAL.max_allowed_packet")[0][0]
    mariadb.execute("SET GLOBAL max_allowed_packet = 16384")
    try:
        writer._connections.drop(0)
        for _ in range(2):
            with pytest.raises(TooLarge, match="max_allowed_packet"):
                append(writer, [bytes(100_000)], [Mark("p", 1, 2, 2)] if is_numbered else [])
        assert append(writer, [b"b"]).first == 2
    finally:
        mariadb.execute(f"SET GLOBAL max_allowed_packet = {packet}")
    assert read_all(store) == [b"a", b"b"]


def test_a_row_about_as_large_as_a_packet_is_written_or_refused(mariadb: MariaDB, url: str) -> None:
    """What does not fit must not be found out by sending it again and again."""
    packet = 1_048_576
    mariadb.execute(f"SET GLOBAL max_allowed_packet = {packet}")
    try:
        with tm.Log(url, parallelism=1) as log, log.publisher() as out:
            epoch = out.epoch
            written = refused = 0
            for size in [*range(packet - 6_000, packet, 700), packet - 1, packet, packet + 1]:
                try:
                    assert out.send(bytes(size)).count == 1
                    written += 1
                except TooLarge:
                    refused += 1
            assert out.epoch == epoch
            assert log.ends().next == written + 1
        assert written > 0
        assert refused > 2
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = 16777216")


def test_a_row_above_16_mib_travels_in_several_packets(mariadb: MariaDB, url: str) -> None:
    mariadb.execute("SET GLOBAL max_allowed_packet = 67108864")
    try:
        row = os.urandom(20_000_000)
        with tm.Log(url, parallelism=1) as log, log.publisher() as out:
            out.send([row])
            assert log.read(1).rows() == [row]
    finally:
        mariadb.execute("SET GLOBAL max_allowed_packet = 16777216")


def test_what_the_server_refuses_leaves_no_hole(
    mariadb: MariaDB, database: str, open_log: Open
) -> None:
    """One lane's table is full: its append fails, those above are withdrawn, those below stay."""
    store = open_log(parallelism=3)
    writer = store.claim()
    append(writer, [b"before"])
    mariadb.execute(
        f"CREATE TRIGGER {database}.full BEFORE INSERT ON {database}.queue_log_003_0001 FOR EACH "
        "ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'table is full'"
    )
    low, failing, high = (writer.reserve(1) for _ in range(3))
    with ThreadPoolExecutor(3) as threads:
        above = threads.submit(writer.append, 2, high, frames_of([b"high"]))
        fails = threads.submit(writer.append, 1, failing, frames_of([b"failing"]))
        with pytest.raises(DiskFull):
            fails.result(timeout=30)
        with pytest.raises(Withdrawn):
            above.result(timeout=30)
        writer.append(0, low, frames_of([b"low"]))
    assert append(writer, [b"again"]).first == failing.first
    assert read_all(store) == [b"before", b"low", b"again"]


def test_publishers_send_on_while_one_table_is_full(
    mariadb: MariaDB, database: str, url: str
) -> None:
    sent = Sent(UniqueValues(length=40_000))  # so large that one table is not enough
    with tm.Log(url, parallelism=3) as log, log.publisher() as out:
        out.send([b"x"])
        mariadb.execute(
            f"CREATE TRIGGER {database}.full BEFORE INSERT ON {database}.queue_log_003_0001 FOR "
            "EACH ROW SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1114, MESSAGE_TEXT = 'full'"
        )

        def send(_: int) -> None:
            number, rows = sent.attempt(2)
            try:
                sent.confirmed(number, out.send(rows).first)
            except DiskFull:
                sent.refused(number)

        with ThreadPoolExecutor(6) as threads:
            list(threads.map(send, range(60)))
        mariadb.execute(f"DROP TRIGGER {database}.full")
        assert 0 < sent.confirmations < 60
        sent.check(log.read(2, rows_max=1000).rows(), first=2)


def test_little_waits_for_the_write_under_way_and_much_is_written_beside_it(
    mariadb: MariaDB, database: str, url: str
) -> None:
    """A commit costs more than small rows do; so these share one, and large ones do not wait."""

    def appends(values: list[bytes]) -> list[int]:
        with ThreadPoolExecutor(12) as threads:
            list(threads.map(out.send, values))
        return [
            int(
                str(mariadb.execute(f"SELECT COUNT(*) FROM {database}.queue_log_002_{at:04}")[0][0])
            )
            for at in range(2)
        ]

    with tm.Log(url, parallelism=2) as log, log.publisher() as out:
        first, second = appends([b"small"] * 120)
        assert first < 120
        assert second == 0
        first, second = appends([bytes(100_000)] * 60)
        assert second > 0


@pytest.mark.parametrize("rate", [None, 0, 0.0])
def test_no_rate_is_no_limit(open_log: Open, rate: float | None) -> None:
    writer = open_log(parallelism=1, writes_per_second_max=rate).claim()
    for _ in range(3):
        append(writer, [b"a"])
        assert writer.turn_s(0) == 0


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf")])
def test_an_impossible_rate_is_refused(open_log: Open, rate: float) -> None:
    with pytest.raises(InvalidInput, match="writes_per_second_max"):
        open_log(writes_per_second_max=rate).claim()


def test_writes_are_throttled_while_groups_absorb_the_load(
    mariadb: MariaDB, database: str, url: str
) -> None:
    sent = Sent()
    with tm.Log(url, parallelism=2, writes_per_second_max=20) as log, log.publisher() as out:
        started = time.monotonic()

        def send(_: int) -> None:
            while time.monotonic() - started < 1:
                number, rows = sent.attempt(2)
                sent.confirmed(number, out.send(rows).first)

        with ThreadPoolExecutor(12) as threads:
            list(threads.map(send, range(12)))
        took_s = time.monotonic() - started
        found = log.read(1, rows_max=100_000).rows()
        sent.check(found)
    total = 0
    for shard in range(2):
        ((writes,),) = mariadb.execute(f"SELECT COUNT(*) FROM {database}.queue_log_002_{shard:04}")
        assert int(str(writes)) <= 20 * took_s + 1
        total += int(str(writes))
    assert sent.confirmations > total  # More than one send in each write.


def test_a_lane_that_writes_ahead_of_another_is_throttled_as_well(open_log: Open) -> None:
    writer = open_log(parallelism=3, writes_per_second_max=0.01).claim()
    low, high = writer.reserve(1), writer.reserve(1)
    with ThreadPoolExecutor(1) as threads:
        ahead = threads.submit(writer.append, 1, high, frames_of([b"high"]))
        while not (high.is_written or ahead.done()):
            time.sleep(0.001)
        writer.append(0, low, frames_of([b"low"]))
        ahead.result(timeout=30)
    assert [writer.turn_s(lane) > 0 for lane in range(3)] == [True, True, False]


def test_a_writer_whose_server_stays_away_breaks_and_a_new_one_finds_out(
    mariadb: MariaDB, database: str
) -> None:
    with TcpProxy(mariadb.port) as proxy:
        store = ServerLog(mariadb.url(database, "log", port=proxy.port), parallelism=1, retry_s=0.3)
        writer = store.claim()
        append(writer, [b"a"])
        proxy.refuse(True)
        proxy.arm(Fault(5, "cut", everyone=True))  # the answer to COMMIT
        with pytest.raises(OutcomeUnknown, match="a new publisher finds out"):
            append(writer, [b"b"])
        assert proxy.fired is not None
        proxy.refuse(False)
        with pytest.raises(OutcomeUnknown):
            append(writer, [b"c"])
        store.close()
    # By a way that was not cut, and with patience.
    with ServerLog(mariadb.url(database, "log")) as store:
        again = store.claim()
        assert append(again, [b"d"]).first == 3  # It had been committed.
        assert read_all(store) == [b"a", b"b", b"d"]


@pytest.mark.parametrize("rows", [[b"b"], []])
def test_an_append_that_was_committed_before_another_took_over_is_confirmed(
    mariadb: MariaDB, database: str, rows: list[bytes]
) -> None:
    """The answer to its commit is lost, and when it looks, the log belongs to somebody else."""
    with (
        TcpProxy(mariadb.port) as proxy,
        ServerLog(mariadb.url(database, "log", port=proxy.port), parallelism=1) as store,
        ServerLog(mariadb.url(database, "log")) as others,
    ):
        writer = store.claim()
        append(writer, [b"a"])
        # The answer to COMMIT, behind those to the marks and the pointer, and to the row.
        proxy.arm(Fault(7 if rows else 5, "cut", everyone=True))
        proxy.refuse(True)
        with ThreadPoolExecutor(1) as threads:
            sending = threads.submit(append, writer, rows, [Mark("loader", 7, 2, 1 + len(rows))])
            proxy.wait_fired(lambda: not sending.done())
            new = others.claim()
            proxy.refuse(False)
            assert sending.result(timeout=30).last == 1 + len(rows)
        with pytest.raises(Fenced):
            append(writer, [b"x"])
        mark = new.mark("loader")
        assert mark is not None
        assert mark.number == 7
        append(new, [b"c"])
        assert read_all(others) == [b"a", *rows, b"c"]


def test_an_append_that_is_interrupted_ends_the_writer_and_the_next_finds_out(
    open_log: Open,
) -> None:
    store = open_log(parallelism=2)
    writer = store.claim()
    append(writer, [b"a"])

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.append(0, writer.reserve(1), frames_of([b"b"]), also=interrupt)
    with pytest.raises(OutcomeUnknown):
        append(writer, [b"c"])
    assert append(store.claim(), [b"d"]).first == 2
    assert read_all(store) == [b"a", b"d"]


def test_connections_that_were_idle_for_long_are_renewed_before_they_are_used(
    open_log: Open,
) -> None:
    """The server ends them; finding that out in the middle of a write would cost an epoch."""
    store = open_log(parallelism=1)
    writer = store.claim()
    append(writer, [b"a"])
    epoch, lane, lent = writer.epoch, writer._connections.get(0), store._pool._idle[-1]
    for connection in (lane, lent):
        connection.used_s -= connecting.IDLE_S
    append(writer, [b"b"])
    assert store.ends().next == 3
    assert writer._connections.get(0) is not lane
    assert lent not in store._pool._idle
    assert writer.epoch == epoch


def test_closing_waits_for_nobody_when_the_server_is_away(mariadb: MariaDB, database: str) -> None:
    with TcpProxy(mariadb.port) as proxy:
        store = ServerLog(mariadb.url(database, "log", port=proxy.port), parallelism=1, retry_s=600)
        writer = store.claim()
        append(writer, [b"a"])
        proxy.refuse(True)
        proxy.cut_all()
        failures: list[BaseException] = []

        def send() -> None:
            try:
                append(writer, [b"b"])
            except (OutcomeUnknown, Closed) as failure:
                failures.append(failure)

        sending = threading.Thread(target=send)
        sending.start()
        while not writer._is_settling:
            time.sleep(0.001)
        store.close()
        sending.join(timeout=60)
        assert not sending.is_alive()
        assert len(failures) == 1


def test_after_fork_a_log_of_the_parent_is_refused(open_log: Open) -> None:
    store = open_log(parallelism=1)
    append(store.claim(), [b"a"])
    child = os.fork()
    if child == 0:
        try:
            store.ends()
        except Closed:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert read_all(store) == [b"a"]
