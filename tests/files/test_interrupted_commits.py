"""A commit that Ctrl-C, or anything else that is no error of ours, breaks off in the middle.

Whether it was written is then not known to the handle: going on would give its numbers twice, and
what is numbered twice is consumed together.
"""

from __future__ import annotations

import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import pytest

import tidemill as tm
from tests.files.counting_fs import CountingFileSystem
from tests.interrupting import interrupted_at
from tidemill.files.commit.combining import Combining, Request
from tidemill.files.folder.folder import Folder
from tidemill.files.journal.journal import Journal
from tidemill.files.state.state import State

WITHIN_S = 60
SOURCE = str(Path(tm.__file__).parent / "files")
PUSHED = [(1, b"a"), (2, b"b"), (3, b"c"), (5, b"x"), (6, b"y"), (9, b"again")]
POINTS = [
    ("append", "before"),
    ("append", "after"),
    ("settle", "before"),
    ("settle", "after"),
]


def _interrupt(monkeypatch: pytest.MonkeyPatch, step: str, when: str) -> None:
    """Let the next such step of a journal be broken off."""
    original = getattr(Journal, step)

    def interrupted(self: Journal, *arguments: Any, **options: Any) -> None:
        monkeypatch.setattr(Journal, step, original)
        if when == "after":
            original(self, *arguments, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(Journal, step, interrupted)


@pytest.mark.parametrize(("step", "when"), POINTS)
def test_a_queue_gives_no_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a")])
        _interrupt(monkeypatch, step, when)
        with pytest.raises(KeyboardInterrupt):
            queue.push([(1, b"broken off")])
        with pytest.raises(tm.StorageFailed, match="interrupted"):
            queue.push([(1, b"b")])
        with pytest.raises(tm.StorageFailed, match="close the queue and open it again"):
            queue.pop()
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"b")])
    popped: list[bytes] = []
    with tm.PriorityQueue(tmp_path) as queue:
        while len(batch := queue.pop(1)):
            popped += batch.values.to_pylist()
    assert [value for value in popped if value != b"broken off"] == [b"a", b"b"]
    assert popped.count(b"broken off") == (0 if (step, when) == ("append", "before") else 1)


@pytest.mark.parametrize(("step", "when"), POINTS)
def test_a_log_goes_on_with_a_new_publisher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    with tm.Log(tmp_path / "log") as log:
        out = log.publisher()
        sent = {b"a": out.send(b"a").first}
        _interrupt(monkeypatch, step, when)
        with pytest.raises(KeyboardInterrupt):
            out.send(b"broken off")
        with pytest.raises(tm.StorageFailed, match="open a new one"):
            out.send(b"b")
        with log.publisher() as out:  # The old one was never closed.
            sent |= {value: out.send(value).first for value in (b"b", b"c")}
        rows = log.read().rows()
    with tm.Log(tmp_path / "log") as log:
        assert log.read().rows() == rows
        assert log.ends().next == len(rows) + 1
    assert {value: rows.index(value) + 1 for value in sent} == sent
    assert len(rows) == len(set(rows))
    assert tm.doctor.verify(tmp_path / "log").worst is None


def _read(queue: tm.PriorityQueue) -> None:
    with queue.read(2) as read:
        read.push(PUSHED[5:])


CALLS: dict[str, Callable[[tm.PriorityQueue], object]] = {
    "push one": lambda queue: queue.push(PUSHED[4:5]),
    "push": lambda queue: queue.push(PUSHED[3:5]),
    "pop": lambda queue: queue.pop(),
    "peek": lambda queue: queue.peek(2),
    "read": _read,
    "delete": lambda queue: queue.delete(2, 3),
    "fork": lambda queue: queue.fork("audit"),
    "sync": lambda queue: queue.sync(),
}


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["none", "full"])
@pytest.mark.parametrize("name", CALLS)
def test_nobody_waits_for_ever_behind_a_call_that_was_interrupted(
    name: str, sync: Literal["none", "full"], tmp_path: Path
) -> None:
    """Wherever it was: others go on, or are told to open the queue again, or of a read whose block
    nobody could leave.
    """
    outcomes: Counter[str] = Counter()

    def go_on(queue: tm.PriorityQueue) -> None:
        try:
            queue.push([(7, b"later")])
            assert len(queue.pop(50)) >= 1
            outcomes["went on"] += 1
        except (tm.StorageFailed, tm.ReadInProgress):
            outcomes["was told"] += 1

    for number in range(1, 1_000):
        path = tmp_path / str(number)
        queue = tm.PriorityQueue(path, sync=sync, maintain_in_background=False)
        queue.push(PUSHED[:3])
        assert queue.pop().rows() == [(1, b"a")]
        if not interrupted_at(number, lambda queue=queue: CALLS[name](queue), SOURCE):  # type: ignore[misc]
            break
        # A thread that hangs must not keep the tests from ending.
        other = threading.Thread(target=go_on, args=[queue], daemon=True)
        other.start()
        other.join(WITHIN_S)
        assert outcomes.total() == number, f"interrupted for the {number}th time"
        queue.close()
        with tm.PriorityQueue(path) as queue:
            left = queue.pop(-1).rows()
        assert left == sorted(set(left))
        assert set(left) <= {*PUSHED, (7, b"later")}
        shutil.rmtree(path)
    queue.close()
    assert number > 10
    assert outcomes["went on"] > 0


@pytest.mark.parametrize("fails", [True, False], ids=["a commit that failed", "one that did not"])
@pytest.mark.parametrize("others", [True, False], ids=["somebody waits", "nobody waits"])
def test_nobody_waits_for_ever_behind_an_interrupt_that_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool, others: bool
) -> None:
    """When all that is left to do is to let others go on."""
    append = Journal.append
    is_last = threading.Event()
    for number in range(1, 100):
        queue = tm.PriorityQueue(tmp_path / str(number), sync="none", maintain_in_background=False)
        later = threading.Thread(target=queue.push, args=[[(7, b"a"), (8, b"b")]], daemon=True)

        def last(
            self: Journal,
            *arguments: Any,
            queue: tm.PriorityQueue = queue,
            later: threading.Thread = later,
        ) -> None:
            monkeypatch.setattr(Journal, "append", append)
            if others:
                later.start()
                while not queue._core.folder.committer._waiting:
                    later.join(0.001)
            if not fails:
                append(self, *arguments)
            is_last.set()
            if fails:
                raise tm.DiskFull("no room")

        monkeypatch.setattr(Journal, "append", last)
        is_last.clear()
        try:
            was_interrupted = interrupted_at(
                number,
                lambda queue=queue: queue.push(PUSHED[3:5]),  # type: ignore[misc]
                "combining.py",
                is_due=is_last.is_set,
            )
        except tm.DiskFull:
            was_interrupted = False
        assert is_last.is_set()
        if not others:
            later.start()
        later.join(WITHIN_S)
        assert not later.is_alive(), f"interrupted for the {number}th time"
        assert set(queue.pop(-1).keys.to_pylist()) >= {7, 8}
        queue.close()
        if not was_interrupted:
            break
    assert number > 1


def test_an_interrupt_waits_for_a_leader_who_has_begun_to_serve_the_request() -> None:
    """What the thread holds must not be let go before it is settled what became of the request."""
    turns = [threading.Event(), threading.Event()]  # in which a group is served
    allowed = [threading.Event(), threading.Event()]
    groups: list[list[Request]] = []

    def serve(group: list[Request]) -> None:
        number = len(groups)
        groups.append(group)
        turns[number].set()
        assert allowed[number].wait(WITHIN_S)

    combining = Combining[Request](serve)
    main = threading.get_ident()
    mine, raised = Request(), threading.Event()

    def others() -> None:
        assert turns[0].wait(WITHIN_S)
        second.start()
        while len(combining._waiting) < 2:
            assert second.is_alive()
        allowed[0].set()
        assert turns[1].wait(WITHIN_S)
        signal.pthread_kill(main, signal.SIGINT)
        # If it were raised at once, it would be now.
        raised.wait(0.5)
        allowed[1].set()

    first = threading.Thread(target=combining.request_one, args=[Request()])
    second = threading.Thread(target=combining.request_one, args=[Request()])
    helper = threading.Thread(target=others)
    first.start()
    helper.start()
    assert turns[0].wait(WITHIN_S)
    # The second thread is to come first, so that it leads.
    while not combining._waiting:
        assert helper.is_alive()
    try:
        combining.request_one(mine)
        pytest.fail("nothing was interrupted")
    except KeyboardInterrupt:
        was_done = mine.done
        raised.set()
    for thread in (first, second, helper):
        thread.join(WITHIN_S)
    assert mine in groups[1]
    assert was_done


def test_an_error_while_an_operation_is_applied_stops_the_handle(tmp_path: Path) -> None:
    queue = tm.PriorityQueue(tmp_path)
    queue.push([b"a"])
    failing = patch.object(State, "cut", side_effect=tm.Corrupt("it does not fit"))
    with failing, pytest.raises(tm.Corrupt):
        queue.pop()
    with pytest.raises(tm.StorageFailed, match="open it again"):
        queue.push([b"b"])
    queue.close()


def test_an_interrupt_in_close_leaves_the_rest_to_the_next_call(tmp_path: Path) -> None:
    queue = tm.PriorityQueue(tmp_path)
    queue.push([b"a"])
    interrupted = patch.object(Folder, "all_cursors", side_effect=KeyboardInterrupt)
    with interrupted, pytest.raises(KeyboardInterrupt):
        queue.close()
    with pytest.raises(tm.Closed):
        queue.pop()
    queue.close()
    queue.close()
    with tm.PriorityQueue(tmp_path) as again:
        assert len(again) == 1


def test_an_interrupt_while_upkeep_begins_does_not_keep_close_waiting(tmp_path: Path) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        if thread.name.startswith("tidemill /"):
            raise KeyboardInterrupt

    queue = tm.PriorityQueue(tmp_path, segment_bytes=32 * 1024)

    def push_all() -> None:
        for _ in range(20):
            queue.push([b"x" * 4000])

    with patch.object(threading.Thread, "start", interrupted), pytest.raises(KeyboardInterrupt):
        push_all()
    push_all()
    ours = [one for one in threading.enumerate() if one.name == f"tidemill {tmp_path}"]
    assert len(ours) == 1
    closing = threading.Thread(target=queue.close)
    closing.start()
    closing.join(WITHIN_S)
    assert not closing.is_alive()


@pytest.mark.parametrize("call", ["push", "pop"])
def test_the_handler_of_a_signal_that_closes_a_queue_in_use_is_told_so(
    tmp_path: Path, call: str
) -> None:
    fs = CountingFileSystem()
    queue = tm.PriorityQueue(tmp_path, file_system=fs)
    queue.push([b"a"])
    queue.push([b"b"])
    main = threading.get_ident()

    has_come = threading.Event()

    def stop(*_: object) -> None:
        has_come.set()
        queue.close()

    def interrupt() -> None:
        assert fs.sync_began.wait(WITHIN_S)
        # A signal that comes right before a thread falls asleep does not wake it.
        while not has_come.wait(0.1):
            signal.pthread_kill(main, signal.SIGUSR1)
        fs.may_sync.set()

    fs.sync_began.clear()
    fs.may_sync.clear()
    before = signal.signal(signal.SIGUSR1, stop)
    helper = threading.Thread(target=interrupt)
    helper.start()
    try:
        with pytest.raises(tm.CallerError, match="behind the call"):
            queue.push([b"c"]) if call == "push" else queue.pop()
    finally:
        fs.may_sync.set()
        helper.join(WITHIN_S)
        signal.signal(signal.SIGUSR1, before)  # Only now nobody sends one any more.
    queue.close()
    with tm.PriorityQueue(tmp_path) as again:
        assert len(again) in ((2, 3) if call == "push" else (1, 2))


def test_an_interrupt_while_all_forks_are_held_leaves_none_of_them_held(tmp_path: Path) -> None:
    for number in range(1, 200):
        queue = tm.PriorityQueue(tmp_path / str(number), sync="none", maintain_in_background=False)
        for fork in ("one", "two", "three"):
            queue.fork(fork)

        def hold(queue: tm.PriorityQueue = queue) -> None:
            with queue._core.folder.all_cursors():
                pass

        # Also within what the standard library does for it.
        was_interrupted = interrupted_at(number, hold, "")
        closing = threading.Thread(target=queue.close, daemon=True)
        closing.start()
        closing.join(WITHIN_S)
        assert not closing.is_alive(), f"interrupted for the {number}th time"
        if not was_interrupted:
            break
    assert number > 10
