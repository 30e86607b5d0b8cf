"""Ctrl-C in the middle of a call on a ring that other threads use."""

from __future__ import annotations

import signal
import threading
from itertools import count

import pytest

import tidemill as tm
from tests.interrupting import interrupted_at
from tidemill.records.memory import MemoryStore
from tidemill.records.ring import Ring


class SlowForOthers(MemoryStore):
    """A store in which a write of any thread but the main one lasts until it is told to go on."""

    def __init__(self) -> None:
        super().__init__()
        self.go_on = threading.Event()

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        if threading.current_thread() is not threading.main_thread():
            assert self.go_on.wait(60)
        return super().replace(name, data, generation)


class InterruptedTurn:
    """The lock for turns, in whose taking Ctrl-C hits the main thread if another has it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.was_given_back = threading.Event()

    def acquire(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._lock.acquire()
        elif not self._lock.acquire(blocking=False):
            signal.raise_signal(signal.SIGINT)

    def release(self) -> None:
        self._lock.release()
        self.was_given_back.set()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def test_an_interrupt_of_who_waits_takes_nothing_from_who_works() -> None:
    store = SlowForOthers()
    ring = Ring.on(store, "alerts", capacity=10)
    ring.enqueue_many([b"one", b"two"])
    idle = ring.group("idle", start="latest")
    turn = InterruptedTurn()
    ring._core.driver._turn = turn  # type: ignore[assignment]
    taken: list[object] = []

    def work() -> None:
        assert turn.was_given_back.wait(60)  # the other waits for an entry
        try:
            taken.append(ring.dequeue())
        except BaseException as error:  # noqa: BLE001 (there should be none)
            taken.append(error)

    working = threading.Thread(target=work)
    working.start()
    with pytest.raises(KeyboardInterrupt):
        idle.dequeue(wait_s=60)
    store.go_on.set()
    working.join(60)
    assert taken == [tm.Entry(0, b"one")]
    assert ring.dequeue() == (1, b"two")
    assert not ring.info().locked


def test_an_interrupt_anywhere_in_a_wait_leaves_a_ring_that_goes_on_and_closes() -> None:
    ring = Ring.on(MemoryStore(), "alerts", capacity=10)

    def wait() -> None:
        assert ring.dequeue(wait_s=0.002) is None

    for number in count(1):
        is_broken_off = interrupted_at(number, wait, "driving.py", "threading.py")
        for call in (wait,) if is_broken_off else (wait, ring.close):
            other = threading.Thread(target=call, daemon=True)
            other.start()
            other.join(30)
            assert not other.is_alive(), f"it waits for ever after interrupt {number}"
        if not is_broken_off:
            break
    assert number > 10
