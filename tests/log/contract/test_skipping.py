"""Skipping: numbers count, and their rows are elsewhere."""

from __future__ import annotations

import pytest

from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append
from tidemill.errors import Fenced, MissingRows
from tidemill.log.contract import Ends, LogStore, Mark, NoteChange

FAR_US = 4_000_000_000_000_000
NOTE = NoteChange("bulk", "token", None)
MARK = Mark("load", 7, 3, 12, b"digest")


def test_numbers_go_on_behind_those_that_were_skipped(bench: Bench, store: LogStore) -> None:
    writer = store.claim()
    append(writer, [b"1", b"2"])
    told: list[int] = []
    unwatch = store.watch(lambda: told.append(1))
    numbers = writer.reserve(10)
    assert (numbers.first, numbers.last) == (3, 12)
    writer.skip(numbers, FAR_US, NOTE, [MARK])
    unwatch()
    assert told
    assert store.ends() == Ends(1, 13)
    assert append(writer, [b"13"]).first == 13
    store.close()
    store = bench.open()
    assert store.ends() == Ends(1, 14)
    assert store.notes()["bulk"] == "token"
    writer = store.claim()
    assert writer.mark("load") == MARK
    assert append(writer, [b"14"]).first == 14
    hot = getattr(store, "hot", store)
    assert int(hot.read(13, rows_max=1, bytes_max=100)[0].times.cast("int64")[0].as_py()) >= FAR_US
    with pytest.raises(MissingRows) as caught:
        hot.read(3, rows_max=1, bytes_max=100)
    assert (caught.value.first, caught.value.last) == (3, 12)
    with pytest.raises(MissingRows):
        hot.read(12, rows_max=1, bytes_max=100)
    assert [batch.rows() for batch in hot.read(14, rows_max=5, bytes_max=100)] == [[b"14"]]
    claim = store.claim_consumer("slow", start=7)
    assert claim.pointer == 6
    store.move_pointer(claim, 12)
    assert store.trim(14) == 13


def test_numbers_at_the_end_are_missing_rows(store: LogStore) -> None:
    writer = store.claim()
    writer.skip(writer.reserve(4), 1, NOTE)
    hot = getattr(store, "hot", store)
    with pytest.raises(MissingRows) as caught:
        hot.read(2, rows_max=1, bytes_max=100)
    assert (caught.value.first, caught.value.last) == (2, 4)
    assert hot.read(5, rows_max=1, bytes_max=100) == []


def test_a_note_that_was_changed_ends_it(bench: Bench, store: LogStore) -> None:
    writer = store.claim()
    append(writer, [b"1"])
    assert store.set_note("bulk", "dropped", expected=None)
    for expected in (None, "other"):
        with pytest.raises(Fenced, match="changed by another"):
            writer.skip(writer.reserve(5), 0, NoteChange("bulk", "token", expected), [MARK])
        writer.close()
        writer = store.claim()
        assert store.ends() == Ends(1, 2)
        assert store.notes()["bulk"] == "dropped"
        assert writer.mark("load") is None
    writer.skip(writer.reserve(5), 0, NoteChange("bulk", "token", "dropped"))
    assert bench.open().ends() == Ends(1, 7)


def test_who_was_fenced_skips_nothing(store: LogStore) -> None:
    old = store.claim()
    numbers = old.reserve(5)
    append(store.claim(), [b"1"])
    with pytest.raises(Fenced):
        old.skip(numbers, 0, NOTE, [MARK])
    assert store.ends() == Ends(1, 2)
    assert store.notes() == {}
