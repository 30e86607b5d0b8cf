"""Events: whoever waits hears of one, however threads take turns."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tidemill.event import Event

WAITERS = 6
ROUNDS = 300


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def test_everybody_who_waits_goes_on_when_it_is_set(restless: None) -> None:
    with ThreadPoolExecutor(WAITERS) as threads:
        for _ in range(ROUNDS):
            event, ready = Event(), threading.Barrier(WAITERS + 1)

            def wait(event: Event = event, ready: threading.Barrier = ready) -> bool:
                ready.wait()
                return event.wait(60)

            waiting = [threads.submit(wait) for _ in range(WAITERS)]
            ready.wait()
            event.set()
            assert [one.result(60) for one in waiting] == [True] * WAITERS


def test_who_comes_after_it_was_cleared_waits(restless: None) -> None:
    event = Event()
    with ThreadPoolExecutor(WAITERS) as threads:
        for _ in range(ROUNDS):
            waiting = [threads.submit(event.wait, 60) for _ in range(WAITERS)]
            event.set()
            assert all(one.result(60) for one in waiting)
            event.clear()
            assert not event.wait(0)


def test_an_event_that_is_set_often_keeps_nothing_of_it() -> None:
    event = Event()
    for _ in range(100):
        event.set()
    assert event._tokens.qsize() == 1
