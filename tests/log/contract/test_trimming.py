"""Trimming: rows go at the front, as far as consumers allow."""

from __future__ import annotations

import pytest

from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append, append_by_turns, read_all
from tidemill.errors import Trimmed
from tidemill.log.contract import Ends, LogStore

ROWS = [b"%d" % number for number in range(1, 31)]


@pytest.fixture
def full(store: LogStore) -> LogStore:
    append_by_turns(store.claim(), [ROWS[start : start + 3] for start in range(0, 30, 3)])
    return store


@pytest.mark.parametrize("before", [1, 2, 3, 4, 15, 30, 31])
def test_rows_below_are_gone_and_the_others_stay(full: LogStore, before: int) -> None:
    assert full.trim(before) == before
    assert full.ends() == Ends(before, 31)
    assert read_all(full) == ROWS[before - 1 :]
    if before > 1:
        with pytest.raises(Trimmed) as caught:
            full.read(before - 1, rows_max=1, bytes_max=1_000)
        assert caught.value.first == before


def test_trimming_never_goes_back_nor_past_the_end(full: LogStore) -> None:
    assert full.trim(20) == 20
    assert full.trim(10) == 20
    assert full.ends() == Ends(20, 31)
    assert full.trim(1_000) == 31
    assert full.ends() == Ends(31, 31)
    assert read_all(full) == []


def test_the_next_number_survives_trimming_everything(bench: Bench, full: LogStore) -> None:
    full.trim(31)
    full.close()
    store = bench.open()
    assert store.ends() == Ends(31, 31)
    assert append(store.claim(), [b"x"]).first == 31
    assert read_all(store) == [b"x"]


def test_it_stops_at_the_slowest_consumer(full: LogStore) -> None:
    slow, fast = full.claim_consumer("slow", start=1), full.claim_consumer("fast", start=1)
    full.move_pointer(slow, 9)
    full.move_pointer(fast, 25)
    assert full.trim(20) == 10
    assert full.trim(20, force=True) == 20
    full.move_pointer(slow, 22)
    assert full.trim(31) == 23


def test_times_are_found_among_what_is_left(full: LogStore) -> None:
    full.trim(5)
    assert full.seq_at(0) == 5
    full.trim(31)
    assert full.seq_at(0) == 31
