"""A thread that works alone has its commits applied while the disk is at work; nobody sees them
before they are on disk, and nobody who looks waits for long.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.commit.solitude import Solitude
from tidemill.limits import GUARDED_SYNC_S_MAX, GUARDED_SYNCS_IN_A_ROW, UNGUARDED_SYNCS

WITHIN_S = 60
T = TypeVar("T")

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


NUMBERS: dict[str, Callable[[tm.PriorityQueue], int]] = {
    "a new consumer": lambda queue: queue.consumer("late").pointer,
    "a push of nothing": lambda queue: queue.push([]).first,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_nobody_is_told_a_number_that_is_not_on_disk(
    name: str, tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with _held_up(tmp_path, pool, lambda queue: queue.push([(2, b"held up")])) as (queue, go_on):
        told = pool.submit(NUMBERS[name], queue)
        assert _is_waiting(told)
        go_on()
        assert told.result(WITHIN_S) == (2 if name == "a new consumer" else 3)


def test_nobody_acks_an_item_that_is_not_on_disk(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.consumer("audit", start="earliest").close()
    with _held_up(tmp_path, pool, lambda queue: queue.push([(2, b"held up")])) as (queue, go_on):
        acked = pool.submit(lambda: queue.consumer("audit").ack(2))
        assert _is_waiting(acked)
        go_on()
        acked.result(WITHIN_S)
        assert queue.consumers() == {"audit": 2}


def test_nobody_who_looks_waits_for_the_sync_of_upkeep(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue, ThreadPoolExecutor(1) as alone:
        for key in (1, 2):
            alone.submit(queue.push, [(key, b"there")]).result(WITHIN_S)
        journal = queue._core.folder.journal
        with journal.sync_lock:  # As upkeep holds it while it syncs.
            before = journal.end
            pushed = alone.submit(queue.push, [(3, b"on its way")])
            while journal.end == before:
                assert not pushed.done()
            assert queue.peek(5).values.to_pylist() == [b"there", b"there"]
            assert queue.stats().items == 2
        pushed.result(WITHIN_S)
        assert queue.peek(5).values.to_pylist()[2:] == [b"on its way"]


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
    kept = [solitude.note_commit() for _ in range(2 * (GUARDED_SYNCS_IN_A_ROW + 1) + 1)]
    row = [True] * GUARDED_SYNCS_IN_A_ROW
    assert kept == [False, *row, False, *row, False]


def test_another_thread_ends_it() -> None:
    solitude = Solitude()
    assert [solitude.note_commit(), solitude.note_commit()] == [False, True]
    other = threading.Thread(target=solitude.note_commit)
    other.start()
    other.join()
    assert [solitude.note_commit(), solitude.note_commit()] == [False, True]


def test_a_commit_that_several_share_ends_it() -> None:
    solitude = Solitude()
    assert [solitude.note_commit(), solitude.note_commit()] == [False, True]
    assert not solitude.note_commit(is_shared=True)
    assert [solitude.note_commit(), solitude.note_commit()] == [False, True]
    assert not any(solitude.note_commit(is_shared=True) for _ in range(3))


def test_nobody_waits_for_a_slow_disk_again_and_again() -> None:
    solitude = Solitude()
    assert [solitude.note_commit(), solitude.note_commit()] == [False, True]
    solitude.note_sync(GUARDED_SYNC_S_MAX / 2)
    assert solitude.note_commit()
    solitude.note_sync(GUARDED_SYNC_S_MAX * 2)
    assert not any(solitude.note_commit() for _ in range(UNGUARDED_SYNCS))
    assert solitude.note_commit()


def test_what_failed_to_be_synced_is_not_acknowledged_and_the_rest_is_there() -> None:
    disk = FailingFileSystem(MemoryFileSystem())
    queue = tm.PriorityQueue("/queue", file_system=disk, maintain_in_background=False)
    for key in range(3):
        queue.push([(key, b"%d" % key)])
    disk.fail_next("sync")
    with pytest.raises(tm.StorageFailed):
        queue.pop()
    # Until it is closed, the handle may show what is in doubt.
    assert queue.peek(-1).values.to_pylist()[-2:] == [b"1", b"2"]
    for attempt in (queue.pop, lambda: queue.push([b"more"])):
        with pytest.raises(tm.StorageFailed, match="close the queue and open it again"):
            attempt()
    queue.close()
    again = tm.PriorityQueue("/queue", file_system=disk, maintain_in_background=False)
    # Whether the pop happened is open; nothing else may be missing.
    assert again.pop(-1).values.to_pylist()[-2:] == [b"1", b"2"]


def test_a_hint_that_the_disk_refuses_harms_nothing() -> None:
    disk = FailingFileSystem(MemoryFileSystem(), error=errno.EINVAL)
    queue = tm.PriorityQueue("/queue", file_system=disk, maintain_in_background=False)
    for key in range(3):
        disk.fail_next("write_out")
        queue.push([(key, b"%d" % key)])
    assert disk.fired == 3
    assert queue.pop(-1).values.to_pylist() == [b"0", b"1", b"2"]
    queue.close()


def _is_waiting(future: Future[T]) -> bool:
    with pytest.raises(TimeoutError):
        future.result(0.2)
    return not future.done()
