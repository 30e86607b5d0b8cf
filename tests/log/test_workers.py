"""The threads that write what was sent soon: others count on them."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import Future, wait
from queue import Queue

import pytest

import tidemill as tm
from tests.log.contract.writing import read_all
from tidemill.log.contract import Reservation
from tidemill.log.memory import Shelf
from tidemill.log.publisher import Publisher

WITHIN_S = 60


def test_a_callback_that_wants_to_end_its_thread_takes_nobody_along() -> None:
    shelf = Shelf()
    store = shelf.open()
    arrived, may_go_on = threading.Semaphore(0), threading.Event()

    def hold(lane: int, reservation: Reservation) -> None:
        arrived.release()
        assert may_go_on.wait(WITHIN_S)

    def leave(_: Future[tm.Receipt]) -> None:
        sys.exit(1)

    shelf.hurdle = hold
    out = Publisher(store)
    futures = [out.send_soon(b"first")]
    assert arrived.acquire(timeout=WITHIN_S)
    futures += [out.send_soon(b"%d" % number) for number in range(10)]
    for future in futures[1:4]:
        future.add_done_callback(leave)
    may_go_on.set()
    assert not wait(futures, WITHIN_S).not_done
    assert out.send_soon(b"later").result(WITHIN_S).first == 12
    out.close()
    assert store.ends().next == 13


def test_a_callback_may_wait_for_what_it_sends() -> None:
    store = Shelf().open()
    numbers: Queue[int] = Queue()
    with Publisher(store) as out:

        def send_on(future: Future[tm.Receipt]) -> None:
            numbers.put(first := future.result().first)
            if first < 3:
                following = out.send_soon(b"following")
                following.add_done_callback(send_on)
                following.result(WITHIN_S)

        out.send_soon(b"first").add_done_callback(send_on)
        # Nobody flushes meanwhile, who would write it.
        assert [numbers.get(timeout=WITHIN_S) for _ in range(3)] == [1, 2, 3]


def test_a_callback_may_send_when_others_have_taken_all_the_room() -> None:
    shelf = Shelf()
    store = shelf.open()
    arrived, may_go_on, is_full = threading.Semaphore(0), threading.Event(), threading.Event()
    numbers: Queue[int] = Queue()

    def hold(lane: int, reservation: Reservation) -> None:
        arrived.release()
        assert may_go_on.wait(WITHIN_S)

    def send_on(_: Future[tm.Receipt]) -> None:
        assert is_full.wait(WITHIN_S)
        out.send_soon(bytes(400)).add_done_callback(lambda it: numbers.put(it.result().first))

    shelf.hurdle = hold
    out = Publisher(store, pending_bytes_max=1_000)
    out.send_soon(bytes(400)).add_done_callback(send_on)
    assert arrived.acquire(timeout=WITHIN_S)
    out.send_soon(bytes(400))
    may_go_on.set()
    out.send_soon(bytes(400))  # It waits for the first one, which makes room for it.
    is_full.set()
    # Nobody flushes meanwhile, who would write it.
    assert numbers.get(timeout=5) == 4
    out.close()


@pytest.mark.parametrize("number", [None, 7])
def test_what_no_thread_can_be_started_for_is_not_sent(
    monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    store = Shelf().open()
    out = Publisher(store, producer="loader")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(tm.SurroundingsError, match="can't start new thread"):
            out.send_soon(b"refused", number=number)
    assert out.send_soon(b"sent", number=number).result(WITHIN_S).first == 1
    out.close()
    assert read_all(store) == [b"sent"]


def test_why_no_thread_can_be_started_is_said_while_another_error_is_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def report(failure: Exception) -> None:
        try:
            raise failure
        except ValueError:
            out.send_soon(b"it failed")

    with Publisher(Shelf().open()) as out, monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(tm.SurroundingsError, match="can't start new thread"):
            report(ValueError("the caller's own"))
