"""A log after `os.fork()`, in the middle of its work, and at the end of the interpreter."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.log import send_line
from tidemill.log.on_files import place

RAISED, RETURNED = 7, 8


@pytest.fixture(params=["memory", "folder"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.Log]:
    address = f"memory:{tmp_path.name}" if request.param == "memory" else str(tmp_path / "log")
    with tm.Log(address) as opened:
        yield opened


def _in_a_copy(work: Callable[[], object]) -> int:
    """How `work` ends in a forked process; it is killed if it hangs."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)
        try:
            work()
        except tm.Closed:
            os._exit(RAISED)
        os._exit(RETURNED)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@contextmanager
def _held_elsewhere(*locks: AbstractContextManager[Any]) -> Iterator[None]:
    """Locks that another thread holds: one that knows its thread lets that take it again."""
    are_held, over = threading.Event(), threading.Event()

    def hold() -> None:
        with ExitStack() as holding:
            for lock in locks:
                holding.enter_context(lock)
            are_held.set()
            over.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    are_held.wait(60)
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_forked_process_opens_logs_of_its_own_whatever_lock_was_held(tmp_path: Path) -> None:
    def work() -> None:
        with tm.Log(tmp_path / "log") as log, log.publisher() as out:
            out.send([b"a"])

    # Another thread is opening a log at the moment of the fork.
    with _held_elsewhere(place._places_mutex):
        assert _in_a_copy(work) == RETURNED
    with tm.Log(tmp_path / "log") as log:
        assert log.read().rows() == [b"a"]


def test_a_copy_raises_whatever_lock_was_held(log: tm.Log) -> None:
    out, receiver = log.publisher(), log.receiver("billing")
    out.send([b"a", b"b"])
    assert receiver.receive() is not None
    # Another thread is in the middle of something at the moment of the fork.
    with _held_elsewhere(receiver._mutex, out._line._mutex, log._store._mutex):
        works: list[Callable[[], object]] = [
            lambda: out.send(b"x"),
            lambda: out.send_soon(b"x"),
            out.flush,
            receiver.receive,
            lambda: next(receiver),
            lambda: receiver.ack(1),
            receiver.flush,
            lambda: receiver.lag,
            log.ends,
            log.read,
            lambda: log.read(datetime.now(UTC)),
            log.verify_archive,
            log.consumers,
            log.publisher,
            lambda: log.receiver("other"),
        ]
        assert [_in_a_copy(work) for work in works] == [RAISED] * len(works)
        for closing in (receiver.close, out.close, log.close):
            assert _in_a_copy(closing) == RETURNED
    # The one that was copied does not notice.
    out.send(b"c")
    receiver.ack(1, 2)
    batch = receiver.receive()
    assert batch is not None
    batch.ack()
    receiver.flush()
    assert log.consumers() == {"billing": 3}


@pytest.mark.parametrize("is_closed", [True, False])
def test_what_is_under_way_when_the_interpreter_ends_is_seen_through(
    tmp_path: Path, is_closed: bool
) -> None:
    script = f"""
import tidemill as tm
log = tm.Log({str(tmp_path / "log")!r})
out = log.publisher()
out.send(b"first")
receiver = log.receiver("billing")
receiver.receive().ack()
for number in range(500):
    log_out = out.send_soon(b"%d" % number)
if {is_closed}:
    log.close()
del log, out  # nobody is left to close them
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with tm.Log(tmp_path / "log") as log:
        assert log.ends() == (1, 502)
        assert log.read(2, rows_max=500).rows() == [b"%d" % number for number in range(500)]
        assert log.consumers() == {"billing": 1}


def test_a_publisher_that_nobody_closes_holds_no_thread_for_long(
    log: tm.Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_line, "WORKER_IDLE_S", 0.01)
    out = log.publisher()
    for number in range(3):
        assert out.send_soon(b"x").result().first == number + 1
        _wait_until_no_worker()
    line = weakref.ref(out._line)
    log.publisher()  # A folder keeps the newest.
    del out
    gc.collect()
    assert line() is None


def _wait_until_no_worker() -> None:
    deadline = time.monotonic() + 60
    # One whose start was interrupted is listed for ever, though it never ran.
    while any(
        thread.name == "tidemill-publisher" and thread.is_alive()
        for thread in threading.enumerate()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.005)  # There is no event: a thread that has ended says nothing.
