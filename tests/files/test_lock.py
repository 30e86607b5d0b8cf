"""One process owns a folder at a time."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pytest

import tidemill as tm
from tests.files.open_files import open_below

OWNER = """
import sys, tidemill as tm
queue = tm.PriorityQueue(sys.argv[1])
queue.push([(1, b"a")])
print("open", flush=True)
sys.stdin.readline()
"""


def owner(path: Path) -> subprocess.Popen[str]:
    """Another process that has the queue open and waits for a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.close()
    process.wait()
    process.stdout.close()


def test_a_second_process_is_told_the_process_id_of_the_first(tmp_path: Path) -> None:
    process = owner(tmp_path)
    try:
        with pytest.raises(tm.Locked) as found:
            tm.PriorityQueue(tmp_path)
        assert found.value.pid == process.pid
        assert str(process.pid) in str(found.value)
    finally:
        end(process)
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 1


def test_the_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    process = owner(tmp_path)
    process.send_signal(signal.SIGKILL)
    end(process)
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(9).rows() == [(1, b"a")]


def test_a_second_handle_in_the_same_process_is_refused_too(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        with pytest.raises(tm.Locked, match="this process") as found:
            tm.PriorityQueue(tmp_path)
        assert found.value.pid == os.getpid()
        queue.push([b"still mine"])
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 1


def test_who_waits_for_its_turn_has_the_queue_once_its_owner_has_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = owner(tmp_path)
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            end(process)

    monkeypatch.setattr(
        "tidemill.lock_wait.time", SimpleNamespace(monotonic=monotonic, sleep=pause)
    )
    with tm.PriorityQueue(tmp_path, lock_wait_s=60) as queue:
        assert queue.pop(9).rows() == [(1, b"a")]
    assert len(pauses) == 3
    assert all(0 < pause < 0.1 for pause in pauses)


def test_who_has_waited_in_vain_is_told_the_owner(tmp_path: Path) -> None:
    process = owner(tmp_path)
    try:
        began_s = monotonic()
        with pytest.raises(tm.Locked) as found:
            tm.PriorityQueue(tmp_path, lock_wait_s=0.2)
        assert monotonic() - began_s >= 0.2
        assert found.value.pid == process.pid
    finally:
        end(process)


def test_a_thread_waits_for_another_one_of_its_process(tmp_path: Path) -> None:
    queue = tm.PriorityQueue(tmp_path)
    found: list[int] = []

    def wait() -> None:
        with tm.PriorityQueue(tmp_path, lock_wait_s=60) as other:
            found.append(len(other))

    waiting = threading.Thread(target=wait)
    waiting.start()
    queue.push([b"a", b"b"])
    queue.close()
    waiting.join(60)
    assert found == [2]


TURNS = """
import sys, tidemill as tm
path, name, turns = sys.argv[1], sys.argv[2], int(sys.argv[3])
for turn in range(turns):
    with tm.PriorityQueue(path, lock_wait_s=120) as queue:
        queue.push([(turn, f"{name} {turn}".encode())])
        print(*(value.decode() for _, value in queue.pop(1).rows()), sep="\\n", flush=True)
"""


def test_processes_that_own_a_queue_for_moments_take_turns(tmp_path: Path) -> None:
    turns, names = 12, "abcd"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TURNS, str(tmp_path), name, str(turns)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    popped = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in processes] == [0] * len(names)
    assert sorted(popped) == sorted(f"{name} {turn}" for name in names for turn in range(turns))
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 0


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", None, True, [1]])
def test_a_wait_that_is_none_is_refused_and_makes_no_folder(tmp_path: Path, bad: object) -> None:
    for make in (tm.PriorityQueue, tm.Log):
        with pytest.raises(tm.InvalidInput, match="lock_wait_s"):
            make(tmp_path / "new", lock_wait_s=bad)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_refused_opening_leaves_the_owner_in_peace(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        for _ in range(3):
            with pytest.raises(tm.Locked):
                tm.PriorityQueue(tmp_path)
        assert queue.push([b"a"]).first == 1


def test_a_failed_opening_lets_the_folder_go(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(5)):
        pass
    for _ in range(3):
        with pytest.raises(tm.BucketMismatch):
            tm.PriorityQueue(tmp_path, bucket=tm.Width(6))
    with tm.PriorityQueue(tmp_path):
        pass


def test_a_failed_opening_leaves_no_file_open(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024) as queue:
        for _ in range(100):
            queue.push([(1, bytes(1_000))])
    first = min((tmp_path / "journal").glob("*.segment"))
    first.rename(tmp_path / "away")
    for _ in range(3):
        with pytest.raises(tm.Corrupt):
            tm.PriorityQueue(tmp_path)
    assert open_below(tmp_path) == 0


def test_a_queue_that_nobody_refers_to_lets_its_folder_go(tmp_path: Path) -> None:
    def abandon(name: str) -> threading.Thread | None:
        queue = tm.PriorityQueue(tmp_path / name, segment_bytes=16 * 1024)
        fork = queue.fork("a")
        for key in range(20):
            queue.push([(key, bytes(2_000))])  # Upkeep has work, so that there is a thread for it.
        del queue
        gc.collect()
        assert len(fork) == 20
        return fork._core.maintenance._thread

    for name in "ab":
        upkeep = abandon(name)
        # Whoever wants the folder collects what is left of the other handle; a round of upkeep that
        # is under way comes to its end first.
        with suppress(tm.Locked):
            tm.PriorityQueue(tmp_path / name).close()
        assert upkeep is not None
        upkeep.join(60)
        assert not upkeep.is_alive()
        with tm.PriorityQueue(tmp_path / name) as queue:
            assert len(queue) == 20
    gc.collect()
    assert open_below(tmp_path) == 0


def test_a_lock_file_full_of_rubbish_still_locks(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path):
        (tmp_path / "lock").write_bytes(b"\xff rubbish")
        with pytest.raises(tm.Locked) as found:
            tm.PriorityQueue(tmp_path)
        assert found.value.pid is None
    (tmp_path / "lock").write_bytes(b"\xff rubbish")
    with tm.PriorityQueue(tmp_path):
        pass


CHILD = """
import os, sys, tidemill as tm
queue = tm.PriorityQueue(sys.argv[1])
queue.push([(key, b"") for key in range(5)])
fork = queue.fork("f")
with queue.read(1) as read:
    pid = os.fork()
    if pid == 0:
        wrong = []
        for name, use in {
            "push": lambda: queue.push([b"x"]),
            "pop": lambda: queue.pop(),
            "peek": lambda: queue.peek(),
            "read": lambda: queue.read().__enter__(),
            "read.push": lambda: read.push([b"x"]),
            "delete": lambda: queue.delete(0, 9),
            "clear": lambda: queue.clear(),
            "fork": lambda: queue.fork("g"),
            "forks": lambda: queue.forks(),
            "sync": lambda: queue.sync(),
            "stats": lambda: queue.stats(),
            "len": lambda: len(queue),
            "fork.pop": lambda: fork.pop(),
            "fork.remove": lambda: fork.remove(),
            "leave": lambda: read.__exit__(None, None, None),
        }.items():
            try:
                use()
            except tm.Closed as error:
                if "os.fork()" not in str(error):
                    wrong.append(name)
            else:
                wrong.append(name)
        queue.close()  # merely forgets the handle
        print(wrong, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    read.keep()
print(len(queue), queue.pop(5).keys.to_pylist(), flush=True)
queue.close()
"""


def test_after_fork_every_use_in_the_child_raises_and_the_parent_goes_on(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n5 [0, 1, 2, 3, 4]\n"


BUSY_PARENT = """
import os, signal, sys, threading, tidemill as tm
queue = tm.PriorityQueue(sys.argv[1], maintain_in_background=False)
queue.push([(key, b"") for key in range(5)])
fork, consumer = queue.fork("f"), queue.consumer("c")
core = queue._core
locks = {
    "the guard": core.view.guard,
    "a cursor": queue._cursor.lock,
    "a fork's cursor": fork._cursor.lock,
    "the forks": core.forks_lock,
    "the committer": core.folder.committer._mutex,
    "shared pops": queue._pops._mutex,
    "a sync": core.folder.journal.sync_lock,
    "a consumer": consumer._mutex,
}
uses = {
    "push": lambda: queue.push([b"x"]),
    "push of many": lambda: queue.push([b"x", b"y"]),
    "push of none": lambda: queue.push([]),
    "pop": lambda: queue.pop(),
    "pop up to a key": lambda: queue.pop(key_max=3),
    "pop with waiting": lambda: queue.pop(wait_s=1),
    "peek": lambda: queue.peek(),
    "read": lambda: queue.read().__enter__(),
    "delete": lambda: queue.delete(0, 9),
    "clear": lambda: queue.clear(),
    "scan": lambda: queue.scan(),
    "fork": lambda: queue.fork("g"),
    "forks": lambda: queue.forks(),
    "sync": lambda: queue.sync(),
    "stats": lambda: queue.stats(),
    "len": lambda: len(queue),
    "consumer": lambda: queue.consumer("d"),
    "consumer.read": lambda: consumer.read(),
    "consumer.ack": lambda: consumer.ack(1),
    "consumer.remove": lambda: consumer.remove(),
    "fork.pop": lambda: fork.pop(),
    "fork.remove": lambda: fork.remove(),
}
wrong = []
for lock_name, lock in locks.items():
    is_held, may_end = threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            may_end.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    for name, use in uses.items():
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)  # ends a child that hangs
            try:
                use()
            except tm.Closed as error:
                os._exit(0 if "os.fork()" in str(error) else 1)
            os._exit(2)
        if os.waitpid(pid, 0)[1] != 0:
            wrong.append(f"{name} while {lock_name} is held")
    pid = os.fork()
    if pid == 0:
        signal.alarm(5)
        consumer.close()
        queue.close()
        os._exit(0)
    if os.waitpid(pid, 0)[1] != 0:
        wrong.append(f"close while {lock_name} is held")
    may_end.set()
    holder.join()
print(wrong, len(queue), flush=True)
queue.close()
"""


def test_a_child_of_a_parent_that_was_busy_does_not_wait_for_ever(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY_PARENT, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[] 5\n"


ORPHAN = """
import os, sys, tidemill as tm
queue = tm.PriorityQueue(sys.argv[1])
reads, writes = os.pipe()
pid = os.fork()
if pid == 0:
    os.close(writes)
    os.read(reads, 1)  # lives on until its parent has ended or lets it go
    os._exit(0)
os.close(reads)
queue.close()
queue = tm.PriorityQueue(sys.argv[1])
queue.push([b"a"])
queue.close()
print("opened again", flush=True)
os.close(writes)
os.waitpid(pid, 0)
"""


SLOW_CHILD = """
import os, sys
reads, writes = os.pipe()
os.register_at_fork(after_in_child=lambda: os.read(reads, 1))  # comes before ours
import tidemill as tm
queue = tm.PriorityQueue(sys.argv[1])
pid = os.fork()
if pid == 0:
    os._exit(0)
queue.close()
queue = tm.PriorityQueue(sys.argv[1])
print("opened again", flush=True)
os.write(writes, b".")
os.waitpid(pid, 0)
try:
    tm.PriorityQueue(sys.argv[1])
except tm.Locked:
    print("the child left the new lock alone")
queue.close()
"""


def test_a_child_that_has_not_let_go_yet_does_not_hold_the_lock(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLOW_CHILD, str(tmp_path)], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout == "opened again\nthe child left the new lock alone\n"


def test_a_child_that_lives_on_does_not_hold_the_lock_of_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ORPHAN, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("opened again\n", "")
