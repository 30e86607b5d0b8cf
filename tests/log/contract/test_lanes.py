"""Appends side by side: durable in any order, readable in the order of their numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.log.contract.writing import frames_of, read_all
from tidemill.log.contract import LogStore, LogWriter, Mark


@pytest.fixture
def writer(store: LogStore) -> LogWriter:
    writer = store.claim()
    if writer.lanes < 2:
        pytest.skip("this store has one lane")
    return writer


@pytest.fixture
def threads(writer: LogWriter) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(writer.lanes) as threads:
        yield threads


def test_an_append_returns_only_when_there_is_no_hole_below(
    store: LogStore, writer: LogWriter, threads: ThreadPoolExecutor
) -> None:
    one, two = writer.reserve(2), writer.reserve(1)
    later = threads.submit(writer.append, 1, two, frames_of([b"c"]))
    # However long one waits: nothing of it is readable while the rows before it are not there.
    assert store.ends().next == 1
    assert not later.done()
    writer.append(0, one, frames_of([b"a", b"b"]))
    later.result(timeout=30)
    assert read_all(store) == [b"a", b"b", b"c"]


def test_of_marks_that_are_shown_together_the_last_counts(
    store: LogStore, writer: LogWriter, threads: ThreadPoolExecutor
) -> None:
    numbers = [writer.reserve(1) for _ in range(3)]
    marks = [Mark("loader", one.first, one.first, one.last) for one in numbers]
    later = [
        threads.submit(writer.append, lane, numbers[lane], frames_of([b"x"]), [marks[lane]])
        for lane in (1, 2)
    ]
    writer.append(0, numbers[0], frames_of([b"x"]), [marks[0]])
    for done in later:
        done.result(timeout=30)
    assert writer.mark("loader") == marks[2]


def test_lanes_that_write_at_random_leave_dense_rows(
    store: LogStore, writer: LogWriter, threads: ThreadPoolExecutor
) -> None:
    lock = threading.Lock()
    numbers = iter(range(1, 101))
    confirmed: list[int] = []

    def write(lane: int) -> None:
        while True:
            with lock:
                number = next(numbers, None)
                if number is None:
                    return
                reservation = writer.reserve(2)
            writer.append(lane, reservation, frames_of([b"%d" % number, b"%d'" % number]))
            assert store.ends().next > reservation.last
            confirmed.append(number)

    for done in [threads.submit(write, lane) for lane in range(writer.lanes)]:
        done.result(timeout=60)
    assert sorted(confirmed) == list(range(1, 101))
    expected = [row for number in range(1, 101) for row in (b"%d" % number, b"%d'" % number)]
    assert read_all(store) == expected
