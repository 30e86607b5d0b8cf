"""A log that begins with another number than 1: only one that never had a row."""

from __future__ import annotations

import pytest

from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append, read_all
from tidemill.errors import InvalidInput, Trimmed
from tidemill.log.contract import Ends, LogStore


def test_rows_are_numbered_from_there_on(bench: Bench, store: LogStore) -> None:
    store.begin_at(41)
    assert store.ends() == Ends(41, 41)
    store.begin_at(41)
    with pytest.raises(Trimmed):
        store.read(40, rows_max=1, bytes_max=100)
    assert read_all(store) == []
    store.close()
    store = bench.open()
    assert store.ends() == Ends(41, 41)
    writer = store.claim()
    assert append(writer, [b"a", b"b"]).first == 41
    assert store.claim_consumer("billing", start=1).pointer == 40
    writer.close()
    store.close()
    store = bench.open()
    assert store.ends() == Ends(41, 43)
    assert read_all(store) == [b"a", b"b"]
    assert store.trim(42) == 41
    assert store.trim(42, force=True) == 42
    assert len(store.layout(1, 100).firsts) == 1


def test_a_log_that_has_rows_or_had_some_stays_as_it_is(bench: Bench, store: LogStore) -> None:
    writer = store.claim()
    append(writer, [b"a", b"b"])
    writer.close()
    for first in (1, 3, 41):
        with pytest.raises(InvalidInput, match="take a new log"):
            store.begin_at(first)
    with pytest.raises(InvalidInput, match="from 1 on"):
        store.begin_at(0)
    assert store.ends() == Ends(1, 3)
    store.trim(3)
    with pytest.raises(InvalidInput, match="take a new log"):
        store.begin_at(41)
    assert append(bench.open().claim(), [b"c"]).first == 3


def test_beginning_with_1_is_what_a_log_does(store: LogStore) -> None:
    store.begin_at(1)
    assert append(store.claim(), [b"a"]).first == 1
