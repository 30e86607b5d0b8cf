"""A queue that may not take more than so much disk."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count as numbers
from pathlib import Path

import pytest

import tidemill as tm
from tests.interrupting import interrupted_at
from tidemill.files.upkeep.room import WhenFull

KIB = 1024
BYTES_MAX = 256 * KIB


def size_of(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def journal_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*.segment"))


def fill(queue: tm.PriorityQueue, size: int = 2_000) -> int:
    """Push until the queue refuses; returns how many pushes it took."""
    count = 0
    while True:
        try:
            queue.push([(count, bytes(size))])
        except tm.QueueFull:
            return count
        count += 1


def test_an_interrupt_of_a_push_keeps_nobody_from_the_room(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, sync="none") as queue:

        def push() -> None:
            queue.push([(1, b"x")])

        for number in numbers(1):
            is_broken_off = interrupted_at(number, push, "room.py", "threading.py")
            other = threading.Thread(target=push, daemon=True)
            other.start()
            other.join(30)
            assert not other.is_alive(), f"it waits for ever after interrupt {number}"
            if not is_broken_off:
                assert number > 3
                break


def test_a_full_queue_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, maintain_in_background=False) as queue:
        count = fill(queue)
        with pytest.raises(tm.QueueFull, match="raise bytes_max"):
            queue.push([(0, bytes(2_000))])
        assert count > 40
        assert len(queue) == count
        assert size_of(tmp_path) <= BYTES_MAX
        assert queue.pop(-1).keys.to_pylist() == list(range(count))


def test_popping_makes_room_again(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, maintain_in_background=False) as queue:
        first = fill(queue)
        for _ in range(5):
            queue.pop(first // 2)
            assert fill(queue) > 10
            assert size_of(tmp_path) <= BYTES_MAX


def test_a_full_queue_can_be_emptied_one_by_one(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, maintain_in_background=False) as queue:
        count = fill(queue)
        assert [queue.pop().keys[0].as_py() for _ in range(count)] == list(range(count))
        assert size_of(tmp_path) <= BYTES_MAX


def test_the_oldest_by_arrival_are_dropped_if_so_told(tmp_path: Path) -> None:
    with tm.PriorityQueue(
        tmp_path, bytes_max=BYTES_MAX, when_full="drop_oldest", maintain_in_background=False
    ) as queue:
        fork = queue.fork("f")
        # Keys fall, so that the oldest are the last in order.
        for number in range(500):
            queue.push([(-number, bytes(2_000))])
            assert size_of(tmp_path) <= BYTES_MAX
        stats = queue.stats()
        assert stats.dropped > 300
        assert len(queue) == len(fork) == 500 - stats.dropped
        kept = [-key for key in queue.pop(-1).keys.to_pylist()]
        assert kept == list(range(499, stats.dropped - 1, -1))
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.stats().dropped == stats.dropped
        assert len(queue.fork("f")) == 500 - stats.dropped


def test_a_push_that_can_never_fit_drops_nothing(tmp_path: Path) -> None:
    with tm.PriorityQueue(
        tmp_path, bytes_max=BYTES_MAX, when_full="drop_oldest", maintain_in_background=False
    ) as queue:
        for number in range(60):
            queue.push([(number, bytes(2_000))])
        before = queue.stats()
        with pytest.raises(tm.QueueFull, match="never fit"):
            queue.push([(0, bytes(BYTES_MAX))])
        assert queue.stats() == before


def test_a_push_of_any_size_goes_in_or_drops_nothing(tmp_path: Path) -> None:
    outcomes = set()
    for kib in range(110, 136, 2):
        with tm.PriorityQueue(
            tmp_path / str(kib),
            bytes_max=BYTES_MAX,
            segment_bytes=BYTES_MAX // 4,
            when_full="drop_oldest",
            maintain_in_background=False,
        ) as queue:
            for number in range(130):
                queue.push([(number, bytes(1_000))])
            before = queue.stats()
            try:
                queue.push([(1_000, bytes(kib * KIB))])
                outcomes.add("pushed")
            except tm.QueueFull as refused:
                outcomes.add(str(refused).split(";")[1])
                assert queue.stats() == before
    assert outcomes == {"pushed", " push in parts, or raise bytes_max"}


def test_what_the_active_segment_has_room_for_goes_in_however_large_its_state(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(
        tmp_path, segment_bytes=32 * KIB, sync="none", maintain_in_background=False
    ) as queue:
        journal = queue._core.folder.journal
        queue.push([(1, b"x")])
        with queue.consumer("slow", start="earliest"):
            made = 0
            while journal.active.start < 80 * KIB:
                queue.fork(f"a-fork-with-a-rather-long-name-that-takes-some-room-{made:04}")
                made += 1
            queue.push([(1, b"x")])
            for name in queue.forks():
                queue.fork(name).clear()
            queue.clear()
            bytes_max = journal.capacity(journal.active.start) + journal.segment_bytes + 500
    with (
        tm.PriorityQueue(
            tmp_path, bytes_max=bytes_max, sync="none", maintain_in_background=False
        ) as queue,
        tm.PriorityQueue(tmp_path, read_only=True) as reader,
        reader.consumer("slow") as slow,
    ):
        # What only the consumer needed can go, and nobody has looked since.
        slow.ack(2)
        assert queue.stats().segments > 1
        assert queue.push([(2, bytes(500))]).count == 1


def test_a_fork_that_is_refused_drops_nothing(tmp_path: Path) -> None:
    with tm.PriorityQueue(
        tmp_path,
        bytes_max=128 * KIB,
        segment_bytes=16 * KIB,
        sync="none",
        when_full="drop_oldest",
        maintain_in_background=False,
    ) as queue:
        queue.fork("audit")
        for number in range(1_000):
            queue.push([(number, bytes(number * 37 % 900))])
            before = queue.stats()
            with pytest.raises(tm.InvalidName):
                queue.fork("AUDIT")
            assert queue.stats() == before
        assert before.dropped


def test_what_a_read_pushes_back_counts_as_well(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, maintain_in_background=False) as queue:
        count = fill(queue)
        with pytest.raises(tm.QueueFull), queue.read(1) as read:
            read.push([(0, bytes(20_000)), (1, bytes(20_000))])
        assert len(queue) == count
        assert size_of(tmp_path) <= BYTES_MAX


def test_a_bound_is_a_whole_number_that_leaves_room_to_work(tmp_path: Path) -> None:
    for bytes_max in (0, -1, 1.5, True, "1 GB", 64 * KIB):
        with pytest.raises(tm.InvalidInput, match="bytes_max"):
            tm.PriorityQueue(tmp_path / "queue", bytes_max=bytes_max)  # type: ignore[arg-type]
    with pytest.raises(tm.InvalidInput, match="when_full"):
        tm.PriorityQueue(tmp_path / "queue", bytes_max=BYTES_MAX, when_full="shrug")  # type: ignore[arg-type]
    assert not (tmp_path / "queue").exists()


def test_a_bound_below_four_of_the_recorded_segments_is_refused(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, segment_bytes=128 * KIB) as queue:
        queue.push([(1, b"a")])
    with pytest.raises(tm.InvalidInput, match="4 segments"):
        tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX)
    with tm.PriorityQueue(tmp_path, bytes_max=1024 * KIB) as queue:
        assert len(queue) == 1


def test_many_frames_of_one_push_count_as_what_they_take(tmp_path: Path) -> None:
    """A row in a bucket of its own takes far more than its bytes."""
    with tm.PriorityQueue(
        tmp_path, bucket=tm.Width(1), bytes_max=BYTES_MAX, maintain_in_background=False
    ) as queue:
        before = size_of(tmp_path)
        with pytest.raises(tm.QueueFull, match="can never fit"):
            queue.push([(key, b"") for key in range(2_000)])
        with pytest.raises(tm.QueueFull, match="can never fit"), queue.read() as read:
            read.push([(key, b"") for key in range(2_000)])
        assert size_of(tmp_path) == before
        for start in range(0, 2_000, 20):
            try:
                queue.push([(key, b"") for key in range(start, start + 20)])
            except tm.QueueFull:
                break
            assert journal_bytes(tmp_path) <= BYTES_MAX
        assert 20 < len(queue) < 2_000
        assert queue.pop(-1).keys.to_pylist() == list(range(start))


@pytest.mark.parametrize("when_full", ["refuse", "drop_oldest"])
def test_threads_that_push_at_once_do_not_count_on_the_same_room(
    tmp_path: Path, when_full: WhenFull
) -> None:
    threads, most = 16, 0
    with (
        tm.PriorityQueue(tmp_path, sync="none", bytes_max=BYTES_MAX, when_full=when_full) as queue,
        ThreadPoolExecutor(threads) as pool,
    ):
        start = threading.Barrier(threads)

        def push(number: int) -> tuple[int, int]:
            """(how many were pushed, the most bytes there were)."""
            start.wait()
            pushed = most = 0
            for turn in range(20):
                size = 30 * KIB if number % 2 else 100
                try:
                    queue.push([(number * 100 + turn, bytes(size))])
                except tm.QueueFull:
                    continue
                pushed += 1
                most = max(most, queue.stats().disk_bytes)
            return pushed, most

        done = list(pool.map(push, range(threads)))
        pushed, most = sum(count for count, _ in done), max(size for _, size in done)
        assert most <= BYTES_MAX
        assert len(queue) == pushed - queue.stats().dropped
        if when_full == "drop_oldest":
            assert pushed == threads * 20
        # Whoever waits for room is let in, or told.
        assert not queue._core.room._reserved


def test_what_is_reserved_is_given_back_when_a_push_fails(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bytes_max=BYTES_MAX, maintain_in_background=False) as queue:
        folder = queue._core.folder
        write = folder.committer._write

        def fail(_operations: object) -> None:
            raise tm.StorageFailed("as if the disk had failed")

        folder.committer._write = fail
        for size in (10, 10 * KIB):
            with pytest.raises(tm.StorageFailed):
                queue.push([(1, bytes(size)), (2, b"")])
        folder.committer._write = write
        assert not queue._core.room._reserved
        assert fill(queue) > 40


def test_forks_take_no_more_than_pushes_may(tmp_path: Path) -> None:
    bytes_max = 1024 * KIB
    with tm.PriorityQueue(
        tmp_path, bytes_max=bytes_max, segment_bytes=16 * KIB, sync="none"
    ) as queue:
        count = fill(queue, 1_000)
        queue.pop(count // 2)
        made = 0
        while made < 3_000:
            try:
                queue.fork(f"fork-{made}")
            except tm.QueueFull:
                break
            made += 1
            assert queue.stats().disk_bytes <= bytes_max
        assert 100 < len(queue.forks()) == made < 3_000
        # Those that are there can be had, and what goes makes room.
        assert len(queue.fork("fork-0")) == count - count // 2
        for number in range(made // 2):
            queue.fork(f"fork-{number}").remove()
        queue._core.maintenance.run_round()
        queue.fork("another")
        assert queue.stats().disk_bytes <= bytes_max


@pytest.mark.parametrize("mode", ["continue", "abort"])
def test_damage_in_what_is_dropped_is_dealt_with_as_elsewhere(tmp_path: Path, mode: str) -> None:
    options = {"bytes_max": BYTES_MAX, "when_full": "drop_oldest", "maintain_in_background": False}
    with tm.PriorityQueue(tmp_path, **options) as queue:  # type: ignore[arg-type]
        for key in range(20):
            queue.push([(key, bytes(2_000))])
        entry = next(iter(queue._core.folder.index.frames_of_segment(1)))
    path = tmp_path / "journal" / f"{1:016}.segment"
    data = bytearray(path.read_bytes())
    data[entry.offset + 1_000] ^= 1
    path.write_bytes(data)
    with tm.PriorityQueue(tmp_path, on_corruption=mode, **options) as queue:  # type: ignore[arg-type]

        def push_all() -> None:
            for key in range(20, 200):
                queue.push([(key, bytes(2_000))])

        if mode == "abort":
            with pytest.raises(tm.Corrupt, match="tells what is lost"):
                push_all()
            return
        push_all()
        assert queue.stats().quarantined == 1
        assert queue.pop(-1).rows()[-1][0] == 199
