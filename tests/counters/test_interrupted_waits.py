"""Ctrl-C in calls that threads of a node wait for, or that wait for them: whatever comes next does
not wait for a lock that nobody gives back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path

import tidemill as tm
from tests.interrupting import interrupted_at
from tidemill.counters import Ledger
from tidemill.event import Event

WITHIN_S = 30


def goes_on_wherever_it_is_interrupted(
    call: Callable[[], object], *sources: str, then: Callable[[], object] | None = None
) -> None:
    """Break a call off at every place where Ctrl-C can, and make another one behind each."""
    for number in count(1):
        is_broken_off = interrupted_at(number, call, "threading.py", *sources)
        ends(then or call, f"after interrupt {number}")
        if not is_broken_off:
            assert number > 1
            return


def ends(call: Callable[[], object], when: str = "at the end") -> None:
    """Have a thread make a call that must not wait for ever."""
    other = threading.Thread(target=call, daemon=True)
    other.start()
    other.join(WITHIN_S)
    assert not other.is_alive(), f"it waits for ever {when}"


def test_counting_and_saving(tmp_path: Path) -> None:
    one = Ledger("node-1", path=tmp_path / "counters", save_ms=1)

    def both() -> None:
        one.upsert("x")
        one.save()

    goes_on_wherever_it_is_interrupted(lambda: one.upsert("x"), "ledger.py", "event.py", then=both)
    goes_on_wherever_it_is_interrupted(one.save, "ledger.py", "event.py", then=both)
    ends(one.close)


def test_exchanging() -> None:
    with tm.Counters("node-1", listen="127.0.0.1:0") as one:
        two = tm.Counters("node-2", peers=[one.address], sync_ms=3_600_000)
        goes_on_wherever_it_is_interrupted(two.sync, "counters.py", "replication")
        ends(two.close)


def test_waiting_for_the_end_of_a_node() -> None:
    one = tm.Counters("node-1")
    goes_on_wherever_it_is_interrupted(lambda: one.wait_halted(0.001), "counters.py", "event.py")
    waiting = threading.Thread(target=one.wait_halted, daemon=True)
    waiting.start()
    ends(one.close)
    waiting.join(WITHIN_S)
    assert not waiting.is_alive()


def test_an_event_lets_everybody_go_on_until_it_is_cleared() -> None:
    event = Event()
    waiting = [threading.Thread(target=event.wait, daemon=True) for _ in range(8)]
    for thread in waiting:
        thread.start()
    event.set()
    for thread in waiting:
        thread.join(WITHIN_S)
        assert not thread.is_alive()
    assert event.wait()
    event.clear()
    assert not event.wait(0.001)
    for _ in range(1_000):
        event.set()
    assert event._tokens.qsize() == 1
