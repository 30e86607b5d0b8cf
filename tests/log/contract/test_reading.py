"""Reading: in order, within bounds, and never past a hole or damage in silence."""

from __future__ import annotations

import threading

import pytest

from tests.files.fake_clock import FakeClock
from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append, append_by_turns, read_all
from tidemill.errors import Corrupt, MissingRows
from tidemill.log.contract import LogStore

ROWS = [b"%d" % number for number in range(1, 31)]


def fill(store: LogStore, rows: int = 30, step: int = 3) -> None:
    writer = store.claim()
    append_by_turns(writer, [ROWS[start : start + step] for start in range(0, rows, step)])
    writer.close()


@pytest.mark.parametrize("start", range(1, 32))
def test_reading_may_begin_at_any_row(store: LogStore, start: int) -> None:
    fill(store)
    assert read_all(store, start) == ROWS[start - 1 :]


@pytest.mark.parametrize("rows_max", [1, 2, 3, 4, 7, 30, 100])
def test_at_most_so_many_rows_are_given(store: LogStore, rows_max: int) -> None:
    fill(store)
    batches = store.read(2, rows_max=rows_max, bytes_max=2**20)
    assert 1 <= sum(len(batch) for batch in batches) <= rows_max
    assert read_all(store, rows_max=rows_max) == ROWS


def test_at_most_about_so_many_bytes_are_given_but_a_frame_at_least(store: LogStore) -> None:
    writer = store.claim()
    for _ in range(10):
        append(writer, [bytes(10_000)])
    assert len(store.read(1, rows_max=100, bytes_max=1)) == 1
    found = sum(len(batch) for batch in store.read(1, rows_max=100, bytes_max=35_000))
    assert 1 <= found <= 4


def test_there_is_nothing_above_the_writer_pointer(store: LogStore) -> None:
    fill(store)
    assert store.read(31, rows_max=10, bytes_max=1_000) == []
    assert store.read(1_000, rows_max=10, bytes_max=1_000) == []


def test_readers_beside_a_writer_see_dense_rows(bench: Bench) -> None:
    store = bench.open()
    writer = store.claim()
    rows = [b"%d" % number for number in range(1, 201)]
    seen: list[list[bytes]] = [[] for _ in range(3)]

    def follow(mine: list[bytes]) -> None:
        reader = bench.open()
        while len(mine) < len(rows):
            mine += read_all(reader, len(mine) + 1)

    threads = [threading.Thread(target=follow, args=(mine,)) for mine in seen]
    for thread in threads:
        thread.start()
    for start in range(0, 200, 4):
        append(writer, rows[start : start + 4])
    for thread in threads:
        thread.join()
    assert seen == [rows] * 3


def test_a_watcher_is_told_of_new_rows(store: LogStore) -> None:
    if store.capabilities.poll_s is not None:
        pytest.skip("this store is polled")
    woken = threading.Event()
    unwatch = store.watch(woken.set)
    writer = store.claim()
    woken.clear()
    append(writer, [b"a"])
    assert woken.wait(60)
    unwatch()
    woken.clear()
    append(writer, [b"b"])
    assert not woken.is_set()


def test_a_time_is_found(store: LogStore, clock: FakeClock) -> None:
    writer = store.claim()
    times = []
    for number in range(5):
        clock.advance(1)
        append(writer, [b"a", b"b"])
        (batch,) = store.read(2 * number + 1, rows_max=1, bytes_max=2**20)
        times.append(int(batch.times.cast("int64")[0].as_py()))
    assert store.seq_at(0) == 1
    for number, time_us in enumerate(times):
        # Two appends may have been written within the same microsecond.
        assert store.seq_at(time_us) == 2 * times.index(time_us) + 1, number
    assert store.seq_at(times[-1] + 1) == 11


def test_a_missing_row_is_an_error_that_names_it(bench: Bench) -> None:
    with bench.open() as store:
        fill(store)
    bench.lose(14)
    with bench.open() as store:
        assert read_all_until_error(store) == (ROWS[:12], 13)


def test_rows_missing_at_the_end_are_an_error(bench: Bench) -> None:
    with bench.open() as store:
        fill(store)
    bench.lose(30)
    with bench.open() as store:
        assert read_all_until_error(store) == (ROWS[:27], 28)


def test_a_damaged_row_is_an_error_that_names_it(bench: Bench) -> None:
    with bench.open() as store:
        fill(store)
    bench.damage(14)
    with bench.open() as store:
        found, at = read_all_until_error(store, Corrupt)
        assert (found, at) == (ROWS[:12], 13)
        assert read_all(store, 16) == ROWS[15:]


def read_all_until_error(
    store: LogStore, kind: type[Corrupt] = MissingRows
) -> tuple[list[bytes], int]:
    """What can be read, and the number at which an error says that no more can."""
    at = 1
    rows: list[bytes] = []
    found: list[Corrupt] = []
    while not found:
        try:
            batches = store.read(at, rows_max=100, bytes_max=2**20)
        except kind as error:
            found.append(error)
            continue
        assert batches, "the end was reached without an error"
        for batch in batches:
            assert batch.first_seq == at
            at = batch.next_seq
            rows += batch.rows()
    assert str(at) in str(found[0])
    if isinstance(found[0], MissingRows):
        assert found[0].first == at
    return rows, at


@pytest.mark.parametrize(("start", "end"), [(1, 31), (2, 30), (8, 9), (29, 100), (31, 40), (5, 5)])
def test_the_layout_of_a_range_is_the_frames_that_hold_its_rows(
    store: LogStore, start: int, end: int
) -> None:
    fill(store)
    layout = store.layout(start, end)
    frames = [first for first in range(1, 31, 3) if first < end and first + 2 >= start < end]
    assert layout.firsts.tolist() == frames
    assert layout.rows.tolist() == [3] * len(frames)
    assert (layout.sizes > 0).all()


def test_the_layout_leaves_out_what_is_trimmed(store: LogStore) -> None:
    fill(store)
    store.trim(8)
    layout = store.layout(1, 100)
    ends = layout.firsts + layout.rows
    assert layout.firsts[0] in (7, 8)  # What was moved elsewhere since has other bounds.
    assert layout.firsts[1:].tolist() == ends[:-1].tolist()
    assert ends[0] > 8
    assert ends[-1] == 31
