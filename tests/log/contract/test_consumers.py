"""Consumers: independent, named, each with one receiver at a time."""

from __future__ import annotations

import threading
import time

import pytest

from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append
from tidemill.errors import Fenced, InvalidInput, InvalidName
from tidemill.log.contract import ConsumerState, LogStore
from tidemill.log.receiver import Receiver


@pytest.fixture
def full(store: LogStore) -> LogStore:
    append(store.claim(), [b"row"] * 20)
    return store


def test_consumers_are_independent(full: LogStore) -> None:
    one, two = full.claim_consumer("one", start=1), full.claim_consumer("two", start=5)
    assert (one.pointer, two.pointer) == (0, 4)
    full.move_pointer(one, 7)
    full.move_pointer(two, 20)
    assert full.consumers() == {
        "one": ConsumerState(7, one.token),
        "two": ConsumerState(20, two.token),
    }


def test_a_consumer_that_exists_goes_on_where_it_was(bench: Bench, full: LogStore) -> None:
    full.move_pointer(full.claim_consumer("one", start=1), 7)
    again = bench.open().claim_consumer("one", start=15)
    assert again.pointer == 7


@pytest.mark.parametrize(("start", "pointer"), [(-5, 0), (1, 0), (21, 20), (99, 20)])
def test_a_start_is_brought_within_the_log(full: LogStore, start: int, pointer: int) -> None:
    assert full.claim_consumer("one", start=start).pointer == pointer


def test_what_no_consumer_can_be_called_is_not_removed(full: LogStore) -> None:
    for name in ("/writer", "a b", ""):
        with pytest.raises(InvalidName):
            full.remove_consumer(name)
    assert full.ends() == (1, 21)


def test_a_start_below_the_first_row_begins_there(full: LogStore) -> None:
    full.trim(11)
    assert full.claim_consumer("one", start=1).pointer == 10


def test_a_newer_receiver_fences_the_older(bench: Bench, full: LogStore) -> None:
    old = full.claim_consumer("one", start=1)
    full.move_pointer(old, 3)
    other = bench.open()
    new = other.claim_consumer("one", start=1)
    assert new.pointer == 3
    with pytest.raises(Fenced):
        full.move_pointer(old, 9)
    other.move_pointer(new, 5)
    assert full.consumers()["one"].pointer == 5


def test_a_claim_counts_until_somebody_else_has_it(bench: Bench, full: LogStore) -> None:
    claim, other = full.claim_consumer("one", start=1), full.claim_consumer("two", start=1)
    full.check_claim(claim)
    newer = bench.open().claim_consumer("one", start=1)
    with pytest.raises(Fenced, match="'one'"):
        full.check_claim(claim)
    full.check_claim(newer)
    full.check_claim(other)
    full.remove_consumer("two")
    with pytest.raises(Fenced, match="'two'"):
        full.check_claim(other)


@pytest.mark.parametrize("prefetch_bytes", [1, 1_000_000])
@pytest.mark.parametrize("ending", ["claimed", "removed"])
def test_a_receiver_that_stores_nothing_hears_that_it_was_overtaken(
    bench: Bench, full: LogStore, prefetch_bytes: int, ending: str
) -> None:
    """While it waits for rows, and while it has read as much ahead as it may."""
    other = bench.open()
    with Receiver(full, "one", prefetch_bytes=prefetch_bytes, rows_max=5) as old:
        assert old.receive() is not None
        if ending == "claimed":
            other.claim_consumer("one", start=1)
        else:
            other.remove_consumer("one")
        began_s = time.monotonic()
        with pytest.raises(Fenced):  # noqa: PT012 (it may give some of what it has read ahead)
            while old.receive() is not None:
                pass
        assert time.monotonic() - began_s < 30
        with pytest.raises(Fenced):
            old.ack(1)


def test_rows_read_ahead_are_not_given_by_a_receiver_that_was_overtaken(
    bench: Bench, full: LogStore
) -> None:
    other = bench.open()
    with Receiver(full, "one", rows_max=1) as old:
        assert old.receive() is not None
        heard = threading.Event()
        old.listen(heard.set)
        other.claim_consumer("one", start=1)
        while old._ack_failure is None:
            assert heard.wait(60)
            heard.clear()
        with pytest.raises(Fenced):
            old.receive()


def test_a_pointer_never_goes_back(full: LogStore) -> None:
    claim = full.claim_consumer("one", start=1)
    full.move_pointer(claim, 9)
    full.move_pointer(claim, 9)
    full.move_pointer(claim, 4)
    assert full.consumers()["one"].pointer == 9


def test_a_pointer_stays_below_the_next_number(full: LogStore) -> None:
    claim = full.claim_consumer("one", start=1)
    with pytest.raises(InvalidInput, match="20"):
        full.move_pointer(claim, 21)
    assert full.consumers()["one"].pointer == 0


def test_a_removed_consumer_is_gone_and_starts_anew(full: LogStore) -> None:
    claim = full.claim_consumer("one", start=1)
    full.move_pointer(claim, 9)
    full.remove_consumer("one")
    full.remove_consumer("one")
    assert full.consumers() == {}
    with pytest.raises(Fenced):
        full.move_pointer(claim, 10)
    again = full.claim_consumer("one", start=3)
    assert again.pointer == 2
    with pytest.raises(Fenced):
        full.move_pointer(claim, 10)


def test_names_differ_by_more_than_case(full: LogStore) -> None:
    full.claim_consumer("Billing", start=1)
    with pytest.raises(InvalidName):
        full.claim_consumer("billing", start=1)
    with pytest.raises(InvalidName):
        full.claim_consumer("../etc", start=1)
    with pytest.raises(InvalidName):
        full.claim_consumer("a' OR '1", start=1)
    assert list(full.consumers()) == ["Billing"]


def test_pointers_are_there_after_closing_and_opening(bench: Bench, full: LogStore) -> None:
    full.move_pointer(full.claim_consumer("one", start=1), 7)
    full.close()
    assert bench.open().consumers()["one"].pointer == 7
