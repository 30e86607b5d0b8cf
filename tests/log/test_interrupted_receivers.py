"""Ctrl-C in a call to a receiver, which then goes on: rows come once, in order, and it closes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.interrupting import interrupted_at
from tests.log.contract.writing import append
from tidemill.log.contract import ConsumerClaim
from tidemill.log.memory import Shelf
from tidemill.log.receiver import Received, Receiver

WITHIN_S = 60
SOURCES = (str(Path(tm.__file__).parent / "log"), threading.__file__)


def _receive(receiver: Receiver, seen: list[int]) -> None:
    batch = receiver.receive()
    assert batch is not None
    seen.append(batch.first_seq)
    batch.ack()
    receiver.flush()


# Python swallows an interrupt that comes while it closes a generator.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_receiver_that_was_interrupted_goes_on_where_it_was() -> None:
    for number in range(1, 2_000):
        with Shelf().open() as store:
            writer = store.claim()
            for row in (b"a", b"b", b"c"):
                append(writer, [row])
            receiver = Receiver(store, "one", follow=False, rows_max=1)
            seen: list[int] = []
            was_interrupted = interrupted_at(
                number,
                lambda receiver=receiver, seen=seen: _receive(receiver, seen),  # type: ignore[misc]
                *SOURCES,
            )
            given = [batch.first_seq for batch in receiver]
            receiver.ack(1, 3)
            assert seen + given == [1, 2, 3], f"interrupted for the {number}th time"
            # A thread that hangs must not keep the tests from ending.
            closing = threading.Thread(target=receiver.close, daemon=True)
            closing.start()
            closing.join(WITHIN_S)
            assert not closing.is_alive(), f"interrupted for the {number}th time"
            assert store.consumers()["one"].pointer == 3
        if not was_interrupted:
            break
    assert number > 10


def test_a_close_that_was_interrupted_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    main, has_come = threading.get_ident(), threading.Event()

    def break_off(*_: object) -> None:
        if not has_come.is_set():
            has_come.set()
            raise KeyboardInterrupt

    def interrupt(receiver: Receiver) -> None:
        while not receiver._is_closed:
            pass
        # A signal that comes right before a thread falls asleep does not wake it.
        while not has_come.wait(0.1):
            signal.pthread_kill(main, signal.SIGUSR1)

    with Shelf().open() as store:
        append(store.claim(), [b"a"])
        receiver = Receiver(store, "one")
        may_store, is_storing = threading.Event(), threading.Event()
        move_pointer = store.move_pointer

        def held_up(claim: ConsumerClaim, pointer: int) -> None:
            is_storing.set()
            assert may_store.wait(WITHIN_S)
            move_pointer(claim, pointer)

        monkeypatch.setattr(store, "move_pointer", held_up)
        batch = receiver.receive()
        assert batch is not None
        batch.ack()
        assert is_storing.wait(WITHIN_S)
        before = signal.signal(signal.SIGUSR1, break_off)
        interrupting = threading.Thread(target=interrupt, args=[receiver])
        interrupting.start()
        with pytest.raises(KeyboardInterrupt):
            receiver.close()
        interrupting.join(WITHIN_S)
        signal.signal(signal.SIGUSR1, before)
        stored: list[int] = []

        def close() -> None:
            receiver.close()
            stored.append(store.consumers()["one"].pointer)

        closing = threading.Thread(target=close)
        closing.start()
        # If it returned at once, it would be now.
        closing.join(0.2)
        may_store.set()
        closing.join(WITHIN_S)
        assert stored == [1]


class TakenAndInterrupted:
    """The lock of a receiver; Ctrl-C comes as soon as this thread has taken rows and let it go,
    and others were given time to wait for the next ones.
    """

    def __init__(self, receiver: Receiver, meanwhile: Callable[[], object]) -> None:
        self._receiver = receiver
        self._mutex = receiver._mutex
        self._meanwhile = meanwhile
        self._thread = threading.get_ident()

    def __enter__(self) -> None:
        self._mutex.acquire()

    def __exit__(self, *_: object) -> None:
        self._mutex.release()
        if threading.get_ident() == self._thread and self._receiver._given:
            self._receiver._mutex = self._mutex
            self._meanwhile()
            raise KeyboardInterrupt


def test_rows_that_are_put_back_go_to_whoever_waits() -> None:
    given: list[int] = []

    def receive() -> None:
        batch = receiver.receive()
        assert batch is not None
        given.append(batch.first_seq)

    def wait_for_more() -> None:
        waiting.start()
        while len(receiver._changed._waiters) < 2:  # type: ignore[attr-defined]
            time.sleep(0.0005)  # The reader is one; the other says nothing.

    with Shelf().open() as store, Receiver(store, "one") as receiver:
        append(store.claim(), [b"a"])
        waiting = threading.Thread(target=receive, daemon=True)
        receiver._mutex = TakenAndInterrupted(receiver, wait_for_more)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            receiver.receive()
        waiting.join(WITHIN_S)
        assert given == [1]


def test_rows_that_were_given_meanwhile_can_be_acked_behind_those_that_are_put_back() -> None:
    given: list[Received | None] = []

    def take_the_next() -> None:
        taking = threading.Thread(target=lambda: given.append(receiver.receive()))
        taking.start()
        taking.join(WITHIN_S)

    with Shelf().open() as store, Receiver(store, "one", rows_max=1) as receiver:
        writer = store.claim()
        for row in (b"a", b"b"):
            append(writer, [row])
        receiver._mutex = TakenAndInterrupted(receiver, take_the_next)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            receiver.receive()
        given.append(receiver.receive())
        assert [batch and batch.first_seq for batch in given] == [2, 1]
        receiver.ack(1, 2)
        assert receiver.pointer == 2
