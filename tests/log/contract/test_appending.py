"""Rows get dense numbers, wholly or not at all, and are readable from then on."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.files.fake_clock import FakeClock
from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append, frames_of, read_all
from tidemill.errors import Closed, SchemaMismatch
from tidemill.log.contract import Ends, LogStore, Mark, Withdrawn
from tidemill.log.publisher import Publisher


def test_a_new_log_is_empty(store: LogStore) -> None:
    assert store.ends() == Ends(1, 1)
    assert store.read(1, rows_max=10, bytes_max=1_000) == []
    assert store.consumers() == {}


def test_numbers_are_dense_and_a_batch_gets_a_contiguous_range(store: LogStore) -> None:
    writer = store.claim()
    one = append(writer, [b"a", b"b", b"c"])
    two = append(writer, [b"d"])
    assert (one.first, one.last, two.first, two.last) == (1, 3, 4, 4)
    assert store.ends() == Ends(1, 5)
    assert read_all(store) == [b"a", b"b", b"c", b"d"]


def test_an_append_says_how_durable_its_rows_are(store: LogStore) -> None:
    writer = store.claim()
    durability = writer.append(0, writer.reserve(1), frames_of([b"a"]))
    assert durability in ("buffered", "synced", "replicated")


def test_several_frames_are_one_append(store: LogStore) -> None:
    writer = store.claim()
    frames = frames_of([b"a", b"b"]) + frames_of([b"c"])
    writer.append(0, writer.reserve(3), frames)
    assert read_all(store) == [b"a", b"b", b"c"]


def test_another_user_sees_what_is_written(bench: Bench, store: LogStore) -> None:
    other = bench.open()
    writer = store.claim()
    append(writer, [b"a"])
    assert other.ends().next == 2
    append(writer, [b"b"])
    assert read_all(other) == [b"a", b"b"]


def test_times_are_those_of_the_clock_and_never_go_back(store: LogStore, clock: FakeClock) -> None:
    writer = store.claim()
    append(writer, [b"a", b"b"])
    now_us = clock.time_ns() // 1_000
    clock.advance(-3)
    append(writer, [b"c"])
    append(store.claim(), [b"d"])
    times = [batch.times.cast(pa.int64()) for batch in store.read(1, rows_max=9, bytes_max=2**20)]
    found = [one for array in times for one in array.to_pylist()]
    assert found == [now_us] * 4


def test_a_mark_is_there_with_its_rows(bench: Bench, store: LogStore) -> None:
    writer = store.claim()
    assert writer.mark("loader") is None
    mark = Mark("loader", 7, 1, 2, b"digest")
    append(writer, [b"a", b"b"], [mark])
    assert writer.mark("loader") == mark
    newer = Mark("loader", 9, 3, 3)
    append(writer, [b"c"], [newer, Mark("other", 1, 3, 3)])
    assert bench.open().claim().mark("loader") == newer


def test_numbers_go_on_behind_those_that_the_caller_knows_of(store: LogStore) -> None:
    """Or an append has failed of which it is yet to hear."""
    writer = store.claim()
    append(writer, [b"a", b"b"])
    one = writer.reserve(3)
    with pytest.raises(Withdrawn):
        writer.reserve(1, after=one.last + 1)
    with pytest.raises(Withdrawn):
        writer.reserve(1, after=one.first)
    writer.append(0, one, frames_of([b"c", b"d", b"e"]))
    assert writer.reserve(1, after=one.last).first == 6


def test_marks_without_rows_are_kept(store: LogStore) -> None:
    writer = store.claim()
    append(writer, [b"a"])
    append(writer, [], [Mark("loader", 3, 2, 1)])
    assert writer.mark("loader") == Mark("loader", 3, 2, 1)
    assert store.ends().next == 2
    append(writer, [b"b"])
    assert read_all(store) == [b"a", b"b"]


def test_typed_rows_come_back_typed(bench: Bench) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("city", pa.utf8())])
    store = bench.open(schema)
    rows = [{"n": 1, "city": "Ghent"}, {"n": 2, "city": None}]
    append(store.claim(), rows, schema=schema)
    assert read_all(bench.open()) == rows
    assert bench.open().versions.newest == schema


def test_older_rows_are_read_in_the_newest_schema(bench: Bench) -> None:
    old = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    append(bench.open(old).claim(), [{"n": 1}], schema=old)
    new = pa.schema([*old, ("city", pa.utf8())])
    store = bench.open(new)
    append(store.claim(), [{"n": 2, "city": "Ghent"}], schema=new)
    assert read_all(store) == [{"n": 1, "city": None}, {"n": 2, "city": "Ghent"}]
    assert len(bench.open().versions) == 2


def test_one_that_was_open_before_reads_rows_of_a_newer_schema(bench: Bench) -> None:
    old = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    early = bench.open(old)
    assert early.ends().next == 1
    new = pa.schema([*old, ("city", pa.utf8())])
    append(bench.open(new).claim(), [{"n": 2, "city": "Ghent"}], schema=new)
    assert [row["n"] for row in read_all(early)] == [2]


def test_one_that_was_open_before_is_told_of_a_newer_schema_if_it_asks(bench: Bench) -> None:
    old = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    early = bench.open(old)
    new = pa.schema([*old, ("city", pa.utf8())])
    bench.open(new)
    assert early.versions_now().newest == new
    assert early.versions.newest == new


def test_a_publisher_of_one_that_was_open_before_sends_rows_of_a_newer_schema(bench: Bench) -> None:
    old = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    early = bench.open(old)
    bench.open(pa.schema([*old, ("city", pa.utf8())])).close()
    with Publisher(early) as out:
        out.send({"n": 1, "city": "Ghent"})
    assert read_all(early) == [{"n": 1, "city": "Ghent"}]


def test_another_schema_is_refused(bench: Bench, store: LogStore) -> None:
    with pytest.raises(SchemaMismatch):
        bench.open(pa.schema([("n", pa.int64())]))
    append(store.claim(), [b"a"])
    assert read_all(store) == [b"a"]


def test_a_closed_store_says_so(bench: Bench) -> None:
    store = bench.open()
    writer = store.claim()
    append(writer, [b"a"])
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.ends()
    with pytest.raises(Closed):
        append(writer, [b"b"])
    assert read_all(bench.open()) == [b"a"]


def test_a_closed_writer_says_so(store: LogStore) -> None:
    writer = store.claim()
    append(writer, [b"a"])
    writer.close()
    writer.close()
    with pytest.raises(Closed):
        append(writer, [b"b"])
    append(store.claim(), [b"b"])
    assert read_all(store) == [b"a", b"b"]


def test_what_is_written_is_there_after_closing_and_opening(bench: Bench) -> None:
    store = bench.open()
    for number in range(20):
        append(store.claim(), [b"%d" % number], [Mark("loader", number, number + 1, number + 1)])
    store.close()
    again = bench.open()
    assert read_all(again) == [b"%d" % number for number in range(20)]
    writer = again.claim()
    assert writer.mark("loader") == Mark("loader", 19, 20, 20)
    assert append(writer, [b"x"]).first == 21
