"""The connection fails at every packet while a transaction is staged and committed on a server, or
somebody else becomes the publisher: it is there once, or not at all.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.log.contract.writing import append
from tests.log.sql.packet_faults import PacketFaults
from tests.services.mariadb import MariaDB
from tests.services.tcp_proxy import Kind, TcpProxy
from tests.transactions.targets import MySQLTarget
from tests.transactions.test_transactions import rows_of
from tidemill.errors import Fenced, StagingLost, TooLarge
from tidemill.files.staging.transaction import Outcome, StagedPart, Transaction
from tidemill.log.sql import staging
from tidemill.log.sql.staging import ServerStaging
from tidemill.log.sql.store import ServerLog


@pytest.fixture
def target(mariadb: MariaDB, database: str) -> MySQLTarget:
    return MySQLTarget(mariadb.url(database, "log"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "is_named"),
    [
        ("cut", True),
        ("tear", False),
        # It takes as long as it takes to notice it, at every packet.
        pytest.param("blackhole", True, marks=pytest.mark.soak),
    ],
)
def test_a_transaction_is_there_once_wherever_the_connection_fails(
    mariadb: MariaDB,
    database: str,
    target: MySQLTarget,
    kind: Kind,
    is_named: bool,
    tally: Callable[[str, int], None],
) -> None:
    number = 0
    parts: list[StagedPart] = []
    with TcpProxy(mariadb.port) as proxy:
        faults = PacketFaults(proxy, kind, mariadb.url(database, "log", port=proxy.port), tally)
        through = ServerStaging(faults.url, "load", retry_s=60)

        def before() -> None:
            nonlocal number
            number += 1
            parts[:] = [target.stage(partition, rows_of(number, partition)) for partition in (0, 1)]

        def step() -> None:
            transaction = Transaction("load", number) if is_named else None
            assert through.commit(transaction, parts).rows == 10

        faults.at_every_packet("a commit", step, before=before)
    expected = [
        row for one in range(1, number + 1) for part in (0, 1) for row in rows_of(one, part)
    ]
    assert target.rows() == expected


@pytest.mark.slow
def test_staging_survives_a_connection_that_fails_at_every_packet(
    mariadb: MariaDB, database: str, target: MySQLTarget, tally: Callable[[str, int], None]
) -> None:
    parts: list[StagedPart] = []
    with TcpProxy(mariadb.port) as proxy:
        faults = PacketFaults(proxy, "cut", mariadb.url(database, "log", port=proxy.port), tally)
        through = MySQLTarget.__new__(MySQLTarget)
        through.url = faults.url

        def step() -> None:
            parts.append(through.stage(len(parts), rows_of(0, len(parts))))

        faults.at_every_packet("staging", step, before=lambda: None)
    target.staging().commit(Transaction("load", 0), parts)
    expected = [row for part in range(len(parts)) for row in rows_of(0, part)]
    assert target.rows() == expected


def test_a_commit_fences_a_publisher_that_is_open(target: MySQLTarget) -> None:
    with ServerLog(target.url) as log:
        writer = log.claim()
        append(writer, [b"before"])
        target.staging().commit(Transaction("load", 0), [target.stage(0, ["staged"])])
        with pytest.raises(Fenced):
            append(writer, [b"too late"])
    assert target.rows() == ["before", "staged"]


@pytest.mark.parametrize("times", [1, 5])
@pytest.mark.parametrize("named", [Transaction("load", 0), None])
def test_who_is_fenced_while_committing_tries_again_and_in_the_end_says_so(
    target: MySQLTarget, monkeypatch: pytest.MonkeyPatch, named: Transaction | None, times: int
) -> None:
    run, fenced = staging._Commit.run, 0

    def fence_and_run(commit: staging._Commit, transaction: Transaction | None) -> Outcome:
        nonlocal fenced
        if fenced < times:
            fenced += 1
            with ServerLog(target.url) as other:
                other.claim()
        return run(commit, transaction)

    monkeypatch.setattr(staging._Commit, "run", fence_and_run)
    part = target.stage(0, ["staged"])
    if times == 1:
        target.staging().commit(named, [part])
    else:
        with pytest.raises(Fenced):
            target.staging().commit(named, [part])
    assert fenced == times
    assert target.rows() == (["staged"] if times == 1 else [])


def test_rows_that_are_swept_while_they_are_committed_are_missed(
    target: MySQLTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = staging._Commit._publish

    def sweep_and_publish(commit: staging._Commit, *arguments: Any) -> None:
        target.lose(parts[1])
        publish(commit, *arguments)

    parts = [target.stage(partition, rows_of(0, partition)) for partition in range(2)]
    monkeypatch.setattr(staging._Commit, "_publish", sweep_and_publish)
    with pytest.raises(StagingLost, match="are gone"):
        target.staging().commit(Transaction("load", 0), parts)
    assert target.rows() == []
    assert target.mark() is None


def test_all_that_was_staged_is_swept_and_of_others_what_is_old(
    target: MySQLTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_ROWS_PER_DELETE", 2)
    for partition in range(5):
        target.stage(partition, ["left behind"])
    target.stage(0, ["of another"], "other")
    target.staging().sweep()
    assert target.staged() == 1
    target._do("UPDATE queue_log_staging SET made = 1")
    target.staging().sweep()
    assert target.staged() == 0


def test_many_who_commit_at_once_wait_for_one_another(target: MySQLTarget) -> None:
    failures: list[BaseException] = []

    def load(name: str) -> None:
        try:
            for number in range(5):
                part = target.stage(0, [f"{name}.{number}"], name)
                target.staging(name).commit(Transaction(name, number), [part])
        except BaseException as error:  # noqa: BLE001 (the test tells)
            failures.append(error)

    threads = [threading.Thread(target=load, args=(f"load{one}",)) for one in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    rows = target.rows()
    for one in range(3):
        mine = [row for row in rows if row.startswith(f"load{one}.")]
        assert mine == [f"load{one}.{number}" for number in range(5)]
    assert len(rows) == 15


def test_frames_are_spread_over_the_shards(target: MySQLTarget) -> None:
    attempt = target.staging().attempt(0)
    for letter in "abcd":
        attempt.write(target.batch([letter * (9 << 20)]))
    part = attempt.finish()
    assert part.frames == 4
    target.staging().commit(Transaction("load", 0), [part])
    assert [row[0] for row in target.rows()] == list("abcd")
    counts = [target._do(f"SELECT COUNT(*) FROM queue_log_002_000{shard}") for shard in (0, 1)]
    assert counts == [2, 2]


def test_a_row_above_the_packet_limit_is_refused_where_it_is_staged(
    mariadb: MariaDB, database: str
) -> None:
    """The server of the tests takes packets of 64 MiB, as much as an item may have."""
    target = MySQLTarget(mariadb.url(database, "log"))
    attempt = target.staging().attempt(0)
    with pytest.raises(TooLarge):
        attempt.write(target.batch(["x" * ((64 << 20) - 100)]))
    attempt.discard()
    assert target.staged() == 0
