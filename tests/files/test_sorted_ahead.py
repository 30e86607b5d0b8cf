"""Windows that another thread sorts: there in time, or sorted by whoever wants them."""

from __future__ import annotations

import os
import threading
from typing import TypeAlias

import pytest

from tests.files.stored_frames import StoredFrames
from tidemill.files.merge import sorted_ahead
from tidemill.files.merge.run import Run
from tidemill.files.merge.sorted_ahead import SortedAhead

Parts: TypeAlias = list[tuple[Run, int, int]]


def overlapping() -> Parts:
    frames = StoredFrames()
    for keys in ([1, 4, 7], [2, 5, 8], [0, 3, 6]):
        frames.push(keys)
    return [(run, 0, run.rows) for run in frames.runs]


def test_another_thread_sorts_what_is_wanted_later(monkeypatch: pytest.MonkeyPatch) -> None:
    sorters: list[str] = []
    has_begun = threading.Event()
    sort = sorted_ahead._sort

    def noted(parts: Parts) -> Run:
        sorters.append(threading.current_thread().name)
        has_begun.set()
        return sort(parts)

    monkeypatch.setattr(sorted_ahead, "_sort", noted)
    ahead = SortedAhead(overlapping())
    assert has_begun.wait(30)
    assert ahead.wait().keys.tolist() == list(range(9))
    assert ahead.wait().keys.tolist() == list(range(9))
    assert len(sorters) == 1
    assert sorters[0].startswith("tidemill-sort")


def test_whoever_wants_it_does_not_wait_for_a_thread_that_sorts_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_busy, may_end = threading.Event(), threading.Event()
    sort = sorted_ahead._sort

    def slow(parts: Parts) -> Run:
        if threading.current_thread() is not threading.main_thread():
            is_busy.set()
            assert may_end.wait(30)
        return sort(parts)

    monkeypatch.setattr(sorted_ahead, "_sort", slow)
    of_others = SortedAhead(overlapping())
    assert is_busy.wait(30)
    ours = SortedAhead(overlapping())
    assert ours.wait().keys.tolist() == list(range(9))
    assert ours.wait().keys.tolist() == list(range(9))
    may_end.set()
    assert of_others.wait().keys.tolist() == list(range(9))


def test_where_no_thread_can_be_had_it_is_sorted_when_it_is_wanted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    sorted_ahead._worker.cache_clear()
    monkeypatch.setattr(threading.Thread, "start", refused)
    ahead = SortedAhead(overlapping())
    assert ahead.wait().keys.tolist() == list(range(9))
    assert ahead.wait().keys.tolist() == list(range(9))
    sorted_ahead._worker.cache_clear()


def test_what_went_wrong_is_raised_to_whoever_wants_the_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    has_begun = threading.Event()

    def failing(parts: Parts) -> Run:
        has_begun.set()
        raise MemoryError("no room to sort in")

    monkeypatch.setattr(sorted_ahead, "_sort", failing)
    ahead = SortedAhead(overlapping())
    assert has_begun.wait(30)
    with pytest.raises(MemoryError, match="no room to sort in"):
        ahead.wait()


def test_a_fork_of_the_process_has_a_thread_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    assert SortedAhead(overlapping()).wait().rows == 9
    has_begun = threading.Event()
    sort = sorted_ahead._sort

    def noted(parts: Parts) -> Run:
        has_begun.set()
        return sort(parts)

    monkeypatch.setattr(sorted_ahead, "_sort", noted)
    child = os.fork()
    if not child:
        ahead = SortedAhead(overlapping())
        is_right = has_begun.wait(30) and ahead.wait().keys.tolist() == list(range(9))
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
