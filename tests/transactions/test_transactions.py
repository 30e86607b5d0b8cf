"""A transaction is there wholly, once, and in order, whatever was staged besides."""

from __future__ import annotations

import pytest

from tests.transactions.targets import Target
from tidemill.errors import (
    InvalidInput,
    InvalidName,
    SchemaMismatch,
    StagingLost,
    TidemillError,
    TransactionRewound,
)
from tidemill.files.staging.transaction import Outcome, Transaction
from tidemill.limits import STAGED_CHUNK_BYTES


def rows_of(number: int, partition: int, count: int = 5) -> list[str]:
    """Never the same twice; all of one length, so that a queue keeps them in order."""
    return [f"{number:03}.{partition:03}.{row:03}" for row in range(count)]


def test_partitions_are_committed_in_order_and_at_once(target: Target) -> None:
    target.write(["before it"])
    parts = [target.stage(partition, rows_of(0, partition)) for partition in (2, 0, 1)]
    assert target.rows() == ["before it"]
    assert target.staged() == 3
    outcome = target.staging().commit(Transaction("load", 0), parts)
    assert outcome == Outcome(2, 16, is_new=True)
    assert outcome.rows == 15
    expected = [row for partition in range(3) for row in rows_of(0, partition)]
    assert target.rows() == ["before it", *expected]
    assert target.staged() == 0
    mark = target.mark()
    assert mark is not None
    assert (mark.number, mark.first, mark.last, len(mark.digest)) == (0, 2, 16, 16)


def test_the_same_number_again_changes_nothing_whatever_was_staged(target: Target) -> None:
    staging = target.staging()
    staging.commit(Transaction("load", 7), [target.stage(0, rows_of(7, 0))])
    target.write(["between us"])
    mark = target.mark()
    again = staging.commit(Transaction("load", 7), [target.stage(0, rows_of(8, 1))])
    assert again == Outcome(1, 5, is_new=False)
    assert target.rows() == [*rows_of(7, 0), "between us"]
    assert target.mark() == mark
    assert target.staged() == 0


def test_other_rows_under_the_same_number_are_told_of(
    target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    for rows in (rows_of(0, 0), rows_of(0, 0)):
        target.staging().commit(Transaction("load", 7), [target.stage(0, rows)])
    assert caplog.messages == []
    again = target.staging().commit(Transaction("load", 7), [target.stage(0, rows_of(1, 0))])
    assert not again.is_new
    assert "'load' has committed number 7 with other rows" in caplog.text


def test_a_lower_number_is_refused_and_a_higher_one_may_skip(target: Target) -> None:
    staging = target.staging()
    staging.commit(Transaction("load", 7), [target.stage(0, ["seven"])])
    with pytest.raises(TransactionRewound, match="number 3 of transaction 'load'") as refusal:
        staging.commit(Transaction("load", 3), [target.stage(0, ["three"])])
    assert refusal.value.last == 7
    staging.commit(Transaction("load", 9), [target.stage(0, ["nines"])])
    assert target.rows() == ["seven", "nines"]


def test_what_was_committed_last_is_seen_by_looking_alone(target: Target) -> None:
    assert target.staging().seen("load") is None
    for number in (7, 9):
        target.staging().commit(Transaction("load", number), [target.stage(0, rows_of(number, 0))])
    mark = target.staging().seen("load")
    assert mark is not None
    assert mark.number == 9
    assert mark == target.mark()


def test_transactions_with_different_ids_do_not_know_each_other(target: Target) -> None:
    for number, name in enumerate(["one", "two", "one", "two"]):
        part = target.stage(0, rows_of(number, 0, 1), name)
        target.staging(name).commit(Transaction(name, number), [part])
    assert target.rows() == [row for number in range(4) for row in rows_of(number, 0, 1)]
    marks = [target.mark(name) for name in ("one", "two")]
    assert [mark and mark.number for mark in marks] == [2, 3]


def test_only_the_attempts_named_count_and_the_others_are_swept(target: Target) -> None:
    for _ in range(2):
        target.stage(0, rows_of(0, 0))  # They died after staging, and before saying so.
    killed = target.staging().attempt(1)
    killed.write(target.batch(rows_of(0, 1)))
    discarded = target.staging().attempt(1)
    discarded.write(target.batch(["x" * 9_000_000]))
    discarded.discard()
    assert target.staged() == 2
    taken = target.stage(0, rows_of(0, 0))
    target.staging().commit(Transaction("load", 0), [taken, target.stage(1, [])])
    assert target.rows() == rows_of(0, 0)
    assert target.staged() == 0


@pytest.mark.parametrize("what", ["lose", "damage"])
def test_what_is_not_there_as_staged_is_not_committed(target: Target, what: str) -> None:
    target.write(["before it"])
    staging = target.staging()
    parts = [target.stage(partition, rows_of(0, partition)) for partition in range(3)]
    getattr(target, what)(parts[1])
    with pytest.raises(TidemillError) as refusal:
        staging.commit(Transaction("load", 0), parts)
    assert type(refusal.value).__name__ in ("StagingLost", "Corrupt")
    assert ("are gone" in str(refusal.value)) == (what == "lose")
    assert target.rows() == ["before it"]
    assert target.mark() is None
    parts[1] = target.stage(1, rows_of(0, 1))
    staging.commit(Transaction("load", 0), parts)
    expected = [row for partition in range(3) for row in rows_of(0, partition)]
    assert target.rows() == ["before it", *expected]


def test_parts_that_say_something_else_than_was_staged_are_refused(target: Target) -> None:
    part = target.stage(0, rows_of(0, 0))
    for wrong in (part._replace(digest=bytes(16)), part._replace(name="../../lock")):
        with pytest.raises(StagingLost, match="nothing was committed"):
            target.staging().commit(Transaction("load", 0), [wrong])
    with pytest.raises(InvalidInput, match="partition 0 comes twice"):
        target.staging().commit(Transaction("load", 0), [part, part])
    assert target.rows() == []


@pytest.mark.parametrize("number", [-1, 2**63, 1.5, True, "1"])
def test_numbers_are_whole_and_fit_64_bits(target: Target, number: object) -> None:
    with pytest.raises(InvalidInput, match="a whole number from 0 on"):
        target.staging().commit(Transaction("load", number), [])  # type: ignore[arg-type]


def test_the_mark_tells_one_set_of_rows_from_another(target: Target) -> None:
    digests = []
    for number in range(2):
        part = target.stage(0, rows_of(number, 0))
        target.staging().commit(Transaction("load", number), [part])
        mark = target.mark()
        assert mark is not None
        digests.append(mark.digest)
    assert digests[0] != digests[1]


def test_rows_are_gathered_into_frames_that_are_large(target: Target) -> None:
    attempt = target.staging().attempt(0)
    attempt.write(target.batch([]))
    large = "x" * STAGED_CHUNK_BYTES
    for rows in ([large], ["a"], [], ["b"]):
        attempt.write(target.batch(rows))
    part = attempt.finish()
    assert (part.frames, part.rows) == (2, 3)
    nothing = target.staging().attempt(1)
    nothing.write(target.batch([]))
    empty = nothing.finish()
    assert (empty.frames, empty.rows) == (0, 0)
    target.staging().commit(Transaction("load", 0), [part, empty])
    assert sorted(target.rows()) == ["a", "b", large]


def test_rows_that_come_at_once_are_staged_in_parts_and_keep_their_order(target: Target) -> None:
    attempt = target.staging().attempt(0)
    value = "x" * (STAGED_CHUNK_BYTES // 100)
    rows = [f"{number:04}{value}" for number in range(310)]
    attempt.write(target.batch(rows))
    attempt.write(target.batch(["last"]))
    part = attempt.finish()
    assert (part.frames, part.rows) == (4, 311)
    target.staging().commit(Transaction("load", 0), [part])
    assert target.rows() == [*rows, "last"]


def test_a_transaction_without_rows_is_remembered_as_well(target: Target) -> None:
    outcome = target.staging().commit(Transaction("load", 4), [target.stage(0, [])])
    assert outcome.rows == 0
    with pytest.raises(TransactionRewound):
        target.staging().commit(Transaction("load", 3), [])
    assert target.rows() == []


def test_rows_without_a_transaction_are_committed_at_once_and_not_remembered(
    target: Target,
) -> None:
    parts = [target.stage(partition, rows_of(0, partition), ".a") for partition in range(2)]
    target.stage(0, ["left behind"], ".b")
    target.staging(".a").commit(None, parts)
    assert target.rows() == rows_of(0, 0) + rows_of(0, 1)
    assert target.staged() == 1
    target.staging(".b").sweep()
    assert target.staged() == 0
    with pytest.raises(StagingLost):
        target.staging(".a").commit(None, parts)
    assert len(target.rows()) == 10


@pytest.mark.parametrize("wrong", [Transaction("../x", 0), Transaction("", 1)])
def test_ids_follow_the_grammar_of_names(target: Target, wrong: Transaction) -> None:
    with pytest.raises(InvalidName):
        target.staging().commit(wrong, [])


def test_rows_that_do_not_fit_are_refused_where_they_are_staged(target: Target) -> None:
    attempt = target.staging().attempt(0)
    attempt.write(target.batch(["a"]).append_column("more", target.batch(["b"]).column(0)))
    with pytest.raises(SchemaMismatch):
        attempt.finish()
    attempt.discard()
    assert target.staged() == 0


def test_an_attempt_that_failed_takes_no_more_rows(target: Target) -> None:
    """It would go on without those that were to be staged when it failed."""
    attempt = target.staging().attempt(0)
    large = target.batch(["x" * STAGED_CHUNK_BYTES])
    with pytest.raises(SchemaMismatch):
        attempt.write(large.append_column("more", large.column(0)))
    for goes_on in (lambda: attempt.write(target.batch(["b"])), attempt.finish):
        with pytest.raises(StagingLost, match="discard it"):
            goes_on()
    attempt.discard()
    target.staging().commit(Transaction("load", 0), [target.stage(0, ["a", "b"])])
    assert target.rows() == ["a", "b"]
    assert target.staged() == 0
