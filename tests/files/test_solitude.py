"""A thread that works alone has its commits applied while the disk is at work; nobody sees them
before they are on disk, and nobody who looks waits for long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.solitude import Solitude
from tidemill.limits import GUARDED_SYNC_S_MAX, GUARDED_SYNCS_IN_A_ROW, UNGUARDED_SYNCS

WITHIN_S = 20

LOOKS: dict[str, Callable[[tm.PriorityQueue], list[bytes]]] = {
    "peek": lambda queue: queue.peek(-1).values.to_pylist(),
    "scan": lambda queue: queue.scan().read_all().column("value").to_pylist(),
    "consumer": lambda queue: [
        value for _, value in queue.consumer("audit", start="earliest").read(10).rows()
    ],
    "a fork": lambda queue: queue.fork("audit").peek(-1).values.to_pylist(),
}


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


@contextmanager
def _held_up(
    path: Path, pool: ThreadPoolExecutor, call: Callable[[tm.PriorityQueue], object]
) -> Iterator[tuple[tm.PriorityQueue, Callable[[], None]]]:
    """(a queue whose thread does not get past the sync of its second call in a row, what lets it
    go on).
    """
    fs = CountingFileSystem()
    is_second = threading.Event()

    def work() -> None:
        queue.push([(1, b"before")])
        fs.sync_began.clear()
        fs.may_sync.clear()
        is_second.set()
        call(queue)

    def go_on() -> None:
        fs.may_sync.set()
        done.result(WITHIN_S)

    with tm.PriorityQueue(path, file_system=fs) as queue:
        done = pool.submit(work)
        try:
            assert is_second.wait(WITHIN_S)
            assert fs.sync_began.wait(WITHIN_S)
            yield queue, go_on
        finally:
            # Whatever has failed, closing must not wait for ever.
            fs.may_sync.set()


@pytest.mark.parametrize("name", LOOKS)
def test_nobody_sees_a_push_that_is_not_on_disk(
    name: str, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with _held_up(tmp_path, pool, lambda queue: queue.push([(2, b"held up")])) as (queue, go_on):
        looked = pool.submit(LOOKS[name], queue)
        # It waits: had it seen either, it would be done, and it has all the time it wants.
        assert _is_waiting(looked)
        go_on()
        assert looked.result(WITHIN_S) == [b"before", b"held up"]


def test_nobody_misses_an_item_whose_pop_is_not_on_disk(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with _held_up(tmp_path, pool, lambda queue: queue.pop()) as (queue, go_on):
        looked = pool.submit(LOOKS["scan"], queue)
        assert _is_waiting(looked)
        go_on()
        assert looked.result(WITHIN_S) == []


def test_two_threads_in_turn_do_not_wait_to_look(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    fs = CountingFileSystem()
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue:
        queue.push([(1, b"a")])
        fs.sync_began.clear()
        fs.may_sync.clear()
        pushed = pool.submit(queue.push, [(2, b"b")])
        assert fs.sync_began.wait(WITHIN_S)
        try:
            assert queue.peek(5).values.to_pylist() == [b"a"]
        finally:
            fs.may_sync.set()
        pushed.result(WITHIN_S)
        assert queue.peek(5).values.to_pylist() == [b"a", b"b"]


def test_now_and_then_a_sync_is_waited_for_without_the_guard() -> None:
    solitude = Solitude()
    kept = [solitude.is_kept() for _ in range(2 * (GUARDED_SYNCS_IN_A_ROW + 1) + 1)]
    row = [True] * GUARDED_SYNCS_IN_A_ROW
    assert kept == [False, *row, False, *row, False]


def test_another_thread_ends_it() -> None:
    solitude = Solitude()
    assert [solitude.is_kept(), solitude.is_kept()] == [False, True]
    other = threading.Thread(target=solitude.is_kept)
    other.start()
    other.join()
    assert [solitude.is_kept(), solitude.is_kept()] == [False, True]


def test_nobody_waits_for_a_slow_disk_again_and_again() -> None:
    solitude = Solitude()
    assert [solitude.is_kept(), solitude.is_kept()] == [False, True]
    solitude.note_sync(GUARDED_SYNC_S_MAX / 2)
    assert solitude.is_kept()
    solitude.note_sync(GUARDED_SYNC_S_MAX * 2)
    assert not any(solitude.is_kept() for _ in range(UNGUARDED_SYNCS))
    assert solitude.is_kept()


def test_what_failed_to_be_synced_is_not_acknowledged_and_the_rest_is_there() -> None:
    disk = FailingFileSystem(MemoryFileSystem())
    queue = tm.PriorityQueue("/queue", file_system=disk, maintain_in_background=False)
    for key in range(3):
        queue.push([(key, b"%d" % key)])
    disk.fail_next("sync")
    with pytest.raises(tm.StorageFailed):
        queue.pop()
    for attempt in (queue.pop, lambda: queue.push([b"more"])):
        with pytest.raises(tm.StorageFailed, match="close the queue and open it again"):
            attempt()
    queue.close()
    again = tm.PriorityQueue("/queue", file_system=disk, maintain_in_background=False)
    # Whether the pop happened is open; nothing else may be missing.
    assert again.pop(-1).values.to_pylist()[-2:] == [b"1", b"2"]


def _is_waiting(future: Future[list[bytes]]) -> bool:
    with pytest.raises(TimeoutError):
        future.result(0.2)
    return not future.done()
