"""Greatest keys, waiting, and the delay queue that both make."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

import tidemill as tm
from tests.files.fake_clock import FakeClock
from tests.interrupting import interrupted_at

WITHIN_S = 60  # long enough for any machine; nothing here waits for it when all is well


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


def test_nothing_above_the_greatest_key_allowed_is_taken(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(4)) as queue:
        queue.push([(key, b"") for key in range(10)])
        assert queue.peek(99, key_max=5).keys.to_pylist() == [0, 1, 2, 3, 4, 5]
        assert queue.pop(3, key_max=5).keys.to_pylist() == [0, 1, 2]
        assert queue.pop(99, key_max=5).keys.to_pylist() == [3, 4, 5]
        assert queue.pop(99, key_max=5).rows() == []
        with queue.read(99, key_max=7) as read:
            assert read.batch.keys.to_pylist() == [6, 7]
        assert queue.pop(-1).keys.to_pylist() == [8, 9]


@pytest.mark.parametrize("key_max", [True, 1.5, "9", 2**63, lambda: None])
def test_a_greatest_key_is_an_int64_or_a_function_that_gives_one(
    tmp_path: Path, key_max: object
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"")])
        with pytest.raises(tm.InvalidKey):
            queue.pop(1, key_max=key_max)  # type: ignore[arg-type]
        assert len(queue) == 1


@pytest.mark.parametrize("wait_s", [-1, float("nan"), True, "1"])
def test_a_wait_is_a_number_of_seconds(tmp_path: Path, wait_s: object) -> None:
    with tm.PriorityQueue(tmp_path) as queue, pytest.raises(tm.InvalidInput):
        queue.pop(1, wait_s=wait_s)  # type: ignore[arg-type]


@pytest.mark.parametrize("n", [1.0, True, None, "1"])
def test_a_number_of_items_is_a_whole_number(tmp_path: Path, n: object) -> None:
    with tm.PriorityQueue(tmp_path) as queue, pytest.raises(tm.InvalidInput):
        queue.pop(n)  # type: ignore[arg-type]


def test_a_pop_that_finds_something_does_not_wait(tmp_path: Path) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        queue.push([(1, b"a")])
        # One item is enough, even if more were asked for.
        assert queue.pop(5, wait_s=10).rows() == [(1, b"a")]
        assert clock.waits == []


def test_a_wait_ends_empty_handed_when_its_time_is_up(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        popped = pool.submit(queue.pop, 1, wait_s=5)
        clock.waiting.acquire()
        clock.advance(3)
        clock.waiting.acquire()
        assert not popped.done()
        clock.advance(3)
        assert popped.result(WITHIN_S).rows() == []
        assert clock.waits == [5.0, 2.0]


def test_waiting_for_no_time_looks_once(tmp_path: Path) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        assert queue.pop(1, wait_s=0).rows() == []
        assert clock.waits == []


@pytest.mark.parametrize("wait_s", [float("inf"), 10**400, 1e300])
def test_a_wait_may_be_as_long_as_one_likes(
    tmp_path: Path, pool: ThreadPoolExecutor, wait_s: float
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        popped = pool.submit(queue.pop, 1, wait_s=wait_s)
        queue.push([(1, b"a")])
        assert popped.result(WITHIN_S).rows() == [(1, b"a")]


def test_a_push_wakes_whoever_waits(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        fork = queue.fork("f")
        waiting = [
            pool.submit(queue.pop, 1, wait_s=5),
            pool.submit(fork.pop, 1, wait_s=5),
            pool.submit(fork.peek, 1, wait_s=5),
        ]
        for _ in waiting:
            clock.waiting.acquire()
        queue.push([(1, b"a")])
        assert waiting[0].result(WITHIN_S).rows() == [(1, b"a")]
        assert waiting[1].result(WITHIN_S).rows() == [(1, b"a")]
        # Whether the peek came before the pop of the same fork is not said.
        clock.advance(10)
        assert waiting[2].result(WITHIN_S).rows() in ([], [(1, b"a")])


def test_a_read_waits_too(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    clock = FakeClock()

    def consume(queue: tm.PriorityQueue) -> list[tuple[int, object]]:
        with queue.read(5, wait_s=5) as read:
            return read.batch.rows()

    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        consumed = pool.submit(consume, queue)
        clock.waiting.acquire()
        queue.push([(2, b"b"), (1, b"a")])
        assert consumed.result(WITHIN_S) == [(1, b"a"), (2, b"b")]
        assert len(queue) == 0


def test_a_push_above_the_greatest_key_keeps_the_wait_going(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        popped = pool.submit(queue.pop, 9, key_max=10, wait_s=5)
        clock.waiting.acquire()
        queue.push([(11, b"no")])
        clock.waiting.acquire()
        queue.push([(10, b"yes")])
        assert popped.result(WITHIN_S).rows() == [(10, b"yes")]


def test_closing_ends_every_wait(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    clock = FakeClock()
    queue = tm.PriorityQueue(tmp_path, clock=clock)
    popped = pool.submit(queue.pop, 1, wait_s=5)
    clock.waiting.acquire()
    queue.close()
    with pytest.raises(tm.Closed):
        popped.result(WITHIN_S)


def test_removing_a_fork_ends_its_waits(tmp_path: Path, pool: ThreadPoolExecutor) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        fork = queue.fork("f")
        popped = pool.submit(fork.pop, 1, wait_s=5)
        clock.waiting.acquire()
        fork.remove()
        with pytest.raises(tm.ForkRemoved):
            popped.result(WITHIN_S)


def delayed(queue: tm.PriorityQueue, clock: FakeClock, pool: ThreadPoolExecutor) -> Future[object]:
    """A consumer of a delay queue, which waits by now."""

    def consume() -> object:
        return queue.pop(10, key_max=clock.time_ns, wait_s=100).values.to_pylist()

    found = pool.submit(consume)
    clock.waiting.acquire()
    return found


def test_a_delay_queue_hands_an_item_out_when_it_is_due(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        due_ns = clock.time_ns() + 5 * 10**8
        queue.push([(due_ns, b"later"), (due_ns + 10**8, b"later still")])
        assert queue.pop(10, key_max=clock.time_ns).rows() == []
        popped = delayed(queue, clock, pool)
        # It sleeps until the item is due, no shorter and no longer.
        assert clock.waits == [0.5]
        clock.advance(0.5)
        assert popped.result(WITHIN_S) == [b"later"]


def test_a_delay_queue_notices_a_clock_that_is_set(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    """Or that went on while the machine was asleep, as the one that waits does not."""
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        queue.push([(clock.time_ns() + 50 * 10**9, b"later")])
        popped = delayed(queue, clock, pool)
        clock.set_on(50)
        clock.advance(1)
        assert popped.result(WITHIN_S) == [b"later"]
        assert clock.waits == [1.0]


def test_a_delay_queue_notices_an_item_that_is_due_sooner(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        now_ns = clock.time_ns()
        queue.push([(now_ns + 50 * 10**9, b"much later")])
        popped = delayed(queue, clock, pool)
        queue.push([(now_ns + 5 * 10**8, b"soon")])
        clock.waiting.acquire()
        assert clock.waits == [1.0, 0.5]
        clock.advance(0.5)
        assert popped.result(WITHIN_S) == [b"soon"]


def test_a_delay_queue_that_is_empty_waits_for_a_push(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        popped = delayed(queue, clock, pool)
        assert clock.waits == [100.0]
        queue.push([(clock.time_ns() - 1, b"overdue")])
        assert popped.result(WITHIN_S) == [b"overdue"]


def test_nothing_is_waited_for_by_who_wants_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        assert len(queue.pop(0, wait_s=60)) == 0
        assert len(queue.peek(0, wait_s=60)) == 0
        assert clock.waits == []


def test_a_limit_that_is_no_clock_is_asked_again_after_a_while(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    clock = FakeClock()
    with tm.PriorityQueue(tmp_path, clock=clock) as queue:
        queue.push([(10, b"a")])
        limits = iter([5, 9, 10])
        popped = pool.submit(lambda: queue.pop(key_max=lambda: next(limits), wait_s=60).rows())
        for _ in range(2):
            clock.waiting.acquire()
            clock.advance(1)
        assert popped.result(WITHIN_S) == [(10, b"a")]
        assert clock.waits == [0.001, 0.001]


def test_an_interrupt_anywhere_in_a_wait_is_told_as_such_and_keeps_nobody_waiting(
    tmp_path: Path, pool: ThreadPoolExecutor
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:

        def wait() -> None:
            assert queue.pop(wait_s=0.002).rows() == []

        for number in count(1):
            is_broken_off = interrupted_at(number, wait, "consuming_end.py", "threading.py")
            pool.submit(wait).result(WITHIN_S)
            if not is_broken_off:
                assert number > 10
                break
        queue.push([(1, b"a")])
        assert queue.pop().rows() == [(1, b"a")]
