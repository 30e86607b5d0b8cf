"""Many threads at one queue: nothing is lost, repeated or reordered, and nobody waits in vain."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import tidemill as tm
from tests.faults.checker import MAIN, UniqueValues
from tests.faults.history import History
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.commit import committer
from tidemill.files.disk.filesystem import File, LocalFileSystem
from tidemill.files.index.lately_read import LatelyRead
from tidemill.files.shovel.handover import hand_over

WITHIN_S = 120


class Recorder:
    """A history that threads write down one at a time."""

    def __init__(self, forks: tuple[str, ...] = (MAIN,)) -> None:
        self.history = History(forks=forks)
        self._lock = threading.Lock()
        self._values = UniqueValues()

    def push(self, queue: tm.PriorityQueue, given: list[int]) -> tm.Receipt:
        with self._lock:
            pairs = self._values.pairs(given)
            number = self.history.push_attempted(pairs)
        receipt = queue.push(pairs)
        with self._lock:
            self.history.push_acknowledged(number)
        return receipt

    def pop(self, end: tm.PriorityQueue | tm.Fork, count: int, fork: str = MAIN) -> int:
        with self._lock:
            number = self.history.pop_attempted(count, fork)
        rows = end.pop(count).rows()
        with self._lock:
            self.history.pop_acknowledged(number, rows)
        return len(rows)

    def check(self, queue: tm.PriorityQueue) -> None:
        ends = {name: queue if name == MAIN else queue.fork(name) for name in self.history.forks}
        self.history.check({name: end.peek(-1).rows() for name, end in ends.items()})


def together(*jobs: Callable[[], object]) -> None:
    """Run all at the same time, and raise what any of them raised."""
    start = threading.Barrier(len(jobs))

    def begin(job: Callable[[], object]) -> None:
        start.wait()
        job()

    with ThreadPoolExecutor(len(jobs)) as pool:
        for future in [pool.submit(begin, job) for job in jobs]:
            future.result(WITHIN_S)


@pytest.mark.parametrize("bucket", [tm.Shift(), tm.Width(8)], ids=["one bucket", "many buckets"])
def test_threads_that_push_and_pop_lose_and_repeat_nothing(
    tmp_path: Path, bucket: tm.Shift | tm.Width
) -> None:
    recorder = Recorder((MAIN, "audit"))
    with tm.PriorityQueue(tmp_path, bucket=bucket, sync="none", segment_bytes=32 * 1024) as queue:
        audit = queue.fork("audit")

        def push_singles(first: int) -> None:
            for number in range(150):
                recorder.push(queue, [(first + number * 7) % 50])

        def push_batches(first: int) -> None:
            for number in range(40):
                recorder.push(queue, [(first + number + at * 3) % 50 for at in range(15)])

        def pop(end: tm.PriorityQueue | tm.Fork, fork: str) -> None:
            for number in range(120):
                recorder.pop(end, number % 9, fork)

        together(
            lambda: push_singles(0),
            lambda: push_singles(3),
            lambda: push_batches(1),
            lambda: push_batches(2),
            lambda: pop(queue, MAIN),
            lambda: pop(queue, MAIN),
            lambda: pop(audit, "audit"),
            lambda: pop(audit, "audit"),
        )
        recorder.check(queue)
        # The counts agree with what is really there.
        assert len(queue) == len(queue.peek(-1))
        assert len(audit) == len(audit.peek(-1))
    with tm.PriorityQueue(tmp_path, bucket=bucket) as queue:
        recorder.check(queue)


def test_a_thread_that_pushes_equal_keys_gets_them_out_in_its_own_order(tmp_path: Path) -> None:
    threads, each = 6, 60
    with tm.PriorityQueue(tmp_path, sync="none") as queue:

        def push(who: int) -> None:
            last = 0
            for number in range(each):
                receipt = queue.push([(1, b"%d %d" % (who, number))])
                assert receipt.first == receipt.last > last
                last = receipt.last

        together(*[lambda who=who: push(who) for who in range(threads)])
        popped = [value.split() for value in queue.pop(-1).values.to_pylist()]
        for who in range(threads):
            mine = [int(number) for name, number in popped if int(name) == who]
            assert mine == list(range(each))


def test_receipts_of_threads_never_overlap_and_leave_no_gap(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, sync="none") as queue:
        lock = threading.Lock()
        taken: list[int] = []

        def push(size: int) -> None:
            for _ in range(50):
                receipt = queue.push([(5, b"")] * size)
                with lock:
                    taken.extend(range(receipt.first, receipt.last + 1))

        together(*[lambda size=size: push(size) for size in (1, 1, 1, 2, 5)])
        assert sorted(taken) == list(range(1, 501))


def test_forks_made_and_removed_among_pushes_and_pops_hold_a_consistent_state(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(
        tmp_path, sync="none", segment_bytes=16 * 1024, bucket=tm.Width(16)
    ) as queue:
        steady = queue.fork("steady")

        def push() -> None:
            for number in range(150):
                queue.push([(number % 40, bytes(60)), (number % 17, bytes(60))])

        def pop() -> None:
            for _ in range(100):
                queue.pop(2)

        def fork(name: str) -> None:
            for _ in range(12):
                child = steady.fork(name)
                grandchild = child.fork(name + "-child")
                child.pop(3)
                # The parent first, for others push meanwhile: a fork starts where it stood.
                left = len(child.peek(3))
                assert len(grandchild.peek(-1)) >= left
                grandchild.remove()
                child.remove()

        together(push, push, pop, pop, lambda: fork("a"), lambda: fork("b"))
        assert queue.forks() == ["steady"]
        assert len(steady) == 600 == len(steady.peek(-1))
        assert len(queue) == len(queue.peek(-1)) >= 200


def test_an_open_read_does_not_stop_pushes(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue, ThreadPoolExecutor(1) as pool:
        queue.push([(1, b"a")])
        with queue.read(1) as read:
            pushed = pool.submit(queue.push, [(0, b"b")])
            assert pushed.result(WITHIN_S).count == 1
            assert len(queue) == 2
            assert read.batch.rows() == [(1, b"a")]
        assert queue.pop(9).rows() == [(0, b"b")]


def test_choosing_items_does_not_stop_pushes(tmp_path: Path) -> None:
    """While a reader is at the disk, in the middle of a choice, a writer goes through."""
    with tm.PriorityQueue(tmp_path) as queue, ThreadPoolExecutor(2) as pool:
        queue.push([(1, b"a")])
        reading, may_read = threading.Event(), threading.Event()
        reader = queue._core.folder.reader
        read_all_live = reader.read_all_live

        def slow(*arguments: object) -> object:
            reading.set()
            assert may_read.wait(WITHIN_S)
            return read_all_live(*arguments)  # type: ignore[arg-type]

        reader.read_all_live = slow  # type: ignore[method-assign, assignment]
        popped = pool.submit(queue.pop, 9)
        assert reading.wait(WITHIN_S)
        assert pool.submit(queue.push, [(0, b"b")]).result(WITHIN_S).count == 1
        assert not popped.done()
        may_read.set()
        assert popped.result(WITHIN_S).rows() == [(1, b"a")]
        assert queue.pop(9).rows() == [(0, b"b")]


class SlowSummaries(LocalFileSystem):
    """Users who read a summary wait, once it is told to be slow; upkeep of its own does not."""

    def __init__(self) -> None:
        self.is_slow = False
        self.opening, self.may_open = threading.Event(), threading.Event()

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        is_read = path.suffix == ".summary" and not (write or create)
        if self.is_slow and is_read and threading.current_thread().name.startswith("user"):
            self.opening.set()
            assert self.may_open.wait(WITHIN_S)
        return super().open(path, write=write, create=create)


USES_OF_SUMMARIES: dict[str, Callable[[tm.PriorityQueue, tm.PriorityQueue], object]] = {
    "pop": lambda queue, _: queue.pop(1_000),
    "peek": lambda queue, _: queue.peek(),
    "delete": lambda queue, _: queue.delete(0, 500),
    "scan": lambda queue, _: queue.scan().read_all(),
    "upkeep": lambda queue, _: queue._core.maintenance.run_round(),
    "shovel": lambda queue, other: queue.shovel(other),
}


@pytest.mark.parametrize("use", USES_OF_SUMMARIES)
def test_reading_summaries_does_not_stop_pushes(tmp_path: Path, use: str) -> None:
    """What a bucket has in sealed segments is read from disk, and nobody waits for that."""
    fs = SlowSummaries()
    with (
        tm.PriorityQueue(
            tmp_path / "queue",
            sync="none",
            segment_bytes=64 * 1024,
            file_system=fs,
            maintain_in_background=False,
        ) as queue,
        tm.PriorityQueue(tmp_path / "other", bucket=tm.Width(1)) as other,
        ThreadPoolExecutor(2, "user") as pool,
    ):
        for start in range(0, 1_000, 10):
            queue.push([(key, bytes(500)) for key in range(start, start + 10)])
        queue._core.folder.journal.finish_seals()
        queue.pop(150)  # Upkeep looks at segments that were used in part.
        queue._cursor.forget()
        queue._core.folder.index._lately_read = LatelyRead()
        fs.is_slow = True
        used = pool.submit(USES_OF_SUMMARIES[use], queue, other)
        assert fs.opening.wait(WITHIN_S)
        assert pool.submit(queue.push, [(2_000, b"x")]).result(WITHIN_S).count == 1
        assert not used.done()
        fs.may_open.set()
        used.result(WITHIN_S)


def test_handing_over_segments_does_not_stop_pushes(tmp_path: Path) -> None:
    fs = SlowSummaries()
    with (
        tm.PriorityQueue(
            tmp_path / "queue", sync="none", segment_bytes=64 * 1024, file_system=fs
        ) as queue,
        tm.PriorityQueue(tmp_path / "other", sync="none", segment_bytes=64 * 1024) as other,
        ThreadPoolExecutor(2, "user") as pool,
    ):
        for start in range(0, 1_000, 10):
            queue.push([(key, bytes(500)) for key in range(start, start + 10)])
        with queue._core.maintenance.paused():
            queue._core.folder.journal.finish_seals()
        fs.is_slow = True
        moved = pool.submit(hand_over, queue._core, queue._cursor, other._core, least_bytes=1)
        assert fs.opening.wait(WITHIN_S)
        assert pool.submit(queue.push, [(2_000, b"x")]).result(WITHIN_S).count == 1
        assert not moved.done()
        fs.may_open.set()
        assert moved.result(WITHIN_S) == 1_000
        assert (len(queue), len(other)) == (1, 1_000)
        assert queue.pop(9).rows() == [(2_000, b"x")]


def test_pushes_that_wait_at_the_same_time_share_one_write_and_one_sync(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    threads = 16
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue, ThreadPoolExecutor(threads) as pool:
        before = fs.calls.copy()
        fs.sync_began.clear()
        fs.may_sync.clear()
        # One push is at the disk; whoever comes meanwhile has to wait for the next turn.
        first = pool.submit(queue.push, [(0, b"first")])
        assert fs.sync_began.wait(WITHIN_S)
        others = [pool.submit(queue.push, [(key, b"x")]) for key in range(1, 8)]
        others += [pool.submit(queue.push, [(key, b"y"), (key, b"z")]) for key in range(8, threads)]
        waiting = queue._core.folder.committer
        _until(lambda: len(waiting._waiting) == threads - 1)
        fs.may_sync.set()
        receipts = [future.result(WITHIN_S) for future in [first, *others]]
        assert all(receipt.durability == "synced" for receipt in receipts)
        assert fs.calls["sync.segment"] - before["sync.segment"] == 2
        assert fs.calls["write.segment"] - before["write.segment"] == 2
        assert len(queue) == 8 + 2 * 8


def test_pops_that_wait_at_the_same_time_share_one_take_and_one_sync(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    threads = 16
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue, ThreadPoolExecutor(threads) as pool:
        queue.push([(key, b"x") for key in range(2 * threads - 3)])
        before = fs.calls.copy()
        fs.sync_began.clear()
        fs.may_sync.clear()
        # One pop is at the disk; whoever comes meanwhile waits for it, and is served with the rest.
        first = pool.submit(queue.pop, 2)
        assert fs.sync_began.wait(WITHIN_S)
        others = [pool.submit(queue.pop, 2) for _ in range(threads - 1)]
        _until(lambda: len(queue._pops._waiting) == threads - 1)
        fs.may_sync.set()
        batches = [future.result(WITHIN_S) for future in [first, *others]]
        assert fs.calls["sync.segment"] - before["sync.segment"] == 2
        popped = [key for batch in batches for key in batch.keys.to_pylist()]
        assert sorted(popped) == list(range(2 * threads - 3))
        # Whoever came last finds what is left; all others get what they asked for, side by side.
        assert sorted(len(batch) for batch in batches) == [0, 1] + [2] * (threads - 2)
        for batch in batches:
            keys = batch.keys.to_pylist()
            assert keys == list(range(keys[0], keys[0] + len(keys))) if keys else True
        assert len(queue) == 0


def test_pops_that_share_a_take_that_fails_all_fail_and_take_nothing(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    queue = tm.PriorityQueue(tmp_path, file_system=fs)
    queue.push([(key, b"x") for key in range(8)])
    with ThreadPoolExecutor(4) as pool:
        fs.sync_began.clear()
        fs.may_sync.clear()
        first = pool.submit(queue.pop)
        assert fs.sync_began.wait(WITHIN_S)
        others = [pool.submit(queue.pop) for _ in range(3)]
        _until(lambda: len(queue._pops._waiting) == 3)

        def fail(*_: object) -> None:
            raise OSError(5, "Input/output error")

        journal = queue._core.folder.journal
        handle = journal.active.file
        journal.active.file = _WithSync(handle, fail)  # type: ignore[assignment]
        fs.may_sync.set()
        assert first.result(WITHIN_S).keys.to_pylist() == [0]
        for other in others:
            with pytest.raises(tm.StorageFailed):
                other.result(WITHIN_S)
        journal.active.file = handle
        queue.close()
    with tm.PriorityQueue(tmp_path) as queue:
        # The take that failed may have reached the disk or not, but the one before it did.
        assert queue.peek(-1).keys.to_pylist() in ([1, 2, 3, 4, 5, 6, 7], [4, 5, 6, 7])


def test_a_pop_interrupted_before_its_turn_takes_nothing_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.PriorityQueue(tmp_path) as queue, ThreadPoolExecutor(4) as pool:
        queue.push([(key, b"x") for key in range(8)])
        pops = queue._pops
        at_the_gate, may_pass = threading.Event(), threading.Event()

        class InterruptedGate:
            """Where the first leader is interrupted, and all others pass."""

            is_first = True

            def __enter__(self) -> None:
                if self.is_first:
                    self.is_first = False
                    at_the_gate.set()
                    assert may_pass.wait(WITHIN_S)
                    raise KeyboardInterrupt
                queue._cursor.lock.acquire()

            def __exit__(self, *_: object) -> None:
                queue._cursor.lock.release()

        monkeypatch.setattr(pops, "_gate", InterruptedGate())
        leader = pool.submit(queue._pops.take, 1)
        assert at_the_gate.wait(WITHIN_S)
        others = [pool.submit(queue.pop) for _ in range(3)]
        _until(lambda: len(pops._waiting) == 4)
        may_pass.set()
        with pytest.raises(KeyboardInterrupt):
            leader.result(WITHIN_S)
        popped = [other.result(WITHIN_S).keys.to_pylist() for other in others]
        assert sorted(popped) == [[0], [1], [2]]
        assert queue.pop().keys.to_pylist() == [3]
        assert not pops.is_led


def test_threads_of_two_forks_that_meet_the_same_damage_set_it_aside_once(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.fork("other")
        for key in range(40):
            queue.push([(key, b"item %d" % key)])
    (segment,) = (tmp_path / "journal").glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[data.index(b"item 20") + 3] ^= 1
    segment.write_bytes(data)
    with tm.PriorityQueue(tmp_path, on_corruption="continue") as queue:
        fork = queue.fork("other")
        popped: dict[str, list[int]] = {"": [], "other": []}

        def drain(name: str, end: tm.PriorityQueue | tm.Fork) -> None:
            while len(batch := end.pop()):
                popped[name] += batch.keys.to_pylist()

        together(
            *[lambda: drain("", queue) for _ in range(4)],
            *[lambda: drain("other", fork) for _ in range(4)],
        )
        expected = [key for key in range(40) if key != 20]
        assert sorted(popped[""]) == sorted(popped["other"]) == expected
        assert len(queue) == len(fork) == 0


def _until(condition: Callable[[], bool]) -> None:
    """Wait for what no event tells, without a limit on speed."""
    pause = threading.Event()
    for _ in range(WITHIN_S * 100):
        if condition():
            return
        pause.wait(0.01)
    raise AssertionError("it never came about")


def test_a_group_too_large_for_one_write_is_written_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "COMMIT_BYTES_MAX", 4096)
    fs = CountingFileSystem()
    threads = 12
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue, ThreadPoolExecutor(threads) as pool:
        before = fs.calls.copy()
        fs.sync_began.clear()
        fs.may_sync.clear()
        first = pool.submit(queue.push, [(0, b"first")])
        assert fs.sync_began.wait(WITHIN_S)
        others = [pool.submit(queue.push, [(key, bytes(900))] * 2) for key in range(1, threads - 2)]
        others += [pool.submit(queue.push, [(key, b"one")]) for key in range(threads - 2, threads)]
        waiting = queue._core.folder.committer
        _until(lambda: len(waiting._waiting) == threads - 1)
        fs.may_sync.set()
        receipts = [future.result(WITHIN_S) for future in [first, *others]]
        assert sum(receipt.count for receipt in receipts) == len(queue) == 2 * (threads - 3) + 3
        seqs = [n for receipt in receipts for n in range(receipt.first, receipt.last + 1)]
        assert sorted(seqs) == list(range(1, len(queue) + 1))
        # One for the first; 9 operations of some 2.5 KB, one at a time below the bound.
        assert fs.calls["write.segment"] - before["write.segment"] == 1 + 9
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue.pop(-1)) == 2 * (threads - 3) + 3


def test_a_sync_that_fails_fails_all_who_shared_it(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    queue = tm.PriorityQueue(tmp_path, file_system=fs)
    folder = queue._core.folder
    with ThreadPoolExecutor(4) as pool:
        fs.sync_began.clear()
        fs.may_sync.clear()
        first = pool.submit(queue.push, [(0, b"first")])
        assert fs.sync_began.wait(WITHIN_S)
        others = [pool.submit(queue.push, [(key, b"x")]) for key in range(1, 4)]
        _until(lambda: len(folder.committer._waiting) == 3)

        def fail(*_: object) -> None:
            raise OSError(5, "Input/output error")

        handle = folder.journal.active.file
        folder.journal.active.file = _WithSync(handle, fail)  # type: ignore[assignment]
        fs.may_sync.set()
        assert first.result(WITHIN_S).durability == "synced"
        for other in others:
            with pytest.raises(tm.StorageFailed):
                other.result(WITHIN_S)
        # The disk is in doubt, so that nothing more is promised until it was opened again.
        with pytest.raises(tm.StorageFailed):
            queue.push([(9, b"z")])
        folder.journal.active.file = handle
        queue.close()
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.peek().values.to_pylist() == [b"first"]


class _WithSync:
    """A file whose sync is somebody else's."""

    def __init__(self, inner: object, sync: Callable[[], None]) -> None:
        self._inner = inner
        self.sync = sync

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_closing_among_pushes_and_pops_ends_each_of_them_wholly_or_not_at_all(
    tmp_path: Path,
) -> None:
    for number in range(5):
        path = tmp_path / str(number)
        recorder = Recorder()
        queue = tm.PriorityQueue(path, sync="none", segment_bytes=16 * 1024)
        under_way = threading.Event()

        def push(queue: tm.PriorityQueue = queue, recorder: Recorder = recorder) -> None:
            try:
                while True:
                    recorder.push(queue, [1, 2, 3])
                    under_way.set()  # noqa: B023
            except tm.Closed:
                return

        def pop(queue: tm.PriorityQueue = queue, recorder: Recorder = recorder) -> None:
            try:
                while True:
                    recorder.pop(queue, 2)
            except tm.Closed:
                return

        def close(queue: tm.PriorityQueue = queue) -> None:
            assert under_way.wait(WITHIN_S)  # noqa: B023
            queue.close()

        together(push, push, pop, pop, close)
        # A pop that raised is known to have taken nothing.
        recorder.history.pops = [pop for pop in recorder.history.pops if pop.pairs is not None]
        with tm.PriorityQueue(path) as again:
            recorder.check(again)


def test_threads_that_wait_share_out_what_comes(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, sync="none") as queue, ThreadPoolExecutor(8) as pool:
        waiting = [pool.submit(queue.pop, 1, wait_s=WITHIN_S) for _ in range(8)]
        for key in range(8):
            queue.push([(key, b"")])
        found = sorted(future.result(WITHIN_S).keys[0].as_py() for future in waiting)
        assert found == list(range(8))


def test_a_scan_that_races_with_closing_says_that_it_was_closed(tmp_path: Path) -> None:
    scans = 3
    for number in range(10):
        queue = tm.PriorityQueue(tmp_path / str(number), segment_bytes=16 * 1024, sync="none")
        for _ in range(30):
            queue.push([(key, bytes(400)) for key in range(30)])
        scanned = threading.Semaphore(0)

        def scan(queue: tm.PriorityQueue = queue, scanned: threading.Semaphore = scanned) -> None:
            while True:
                queue.scan().read_all()
                scanned.release()

        with ThreadPoolExecutor(scans) as pool:
            under_way = [pool.submit(scan) for _ in range(scans)]
            for _ in range(scans):
                assert scanned.acquire(timeout=WITHIN_S)
            queue.close()
            assert [type(one.exception(WITHIN_S)) for one in under_way] == [tm.Closed] * scans
