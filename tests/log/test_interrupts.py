"""Ctrl-C in a call to a publisher: wherever it comes, nobody else waits for ever."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

import tidemill as tm
from tests.interrupting import interrupted_at
from tests.log.contract.writing import read_all
from tidemill.log.contract import Reservation
from tidemill.log.memory import Shelf
from tidemill.log.publisher import Publisher
from tidemill.log.send_line import SendLine
from tidemill.log.sends import Send
from tidemill.log.turn import Turn

WITHIN_S = 60
SOURCES = (str(Path(tm.__file__).parent / "log"), threading.__file__)


class Latch:
    """An event of its own: that of the standard library is interrupted with the rest of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            self._lock.release()

    def wait(self, timeout_s: float = WITHIN_S) -> bool:
        if self._lock.acquire(timeout=timeout_s):
            self._lock.release()
        return self._is_set


class Scene:
    """A publisher whose first append is held up until others wait behind it."""

    def __init__(self, lanes: int) -> None:
        self.shelf = Shelf(lanes=lanes)
        self.store = self.shelf.open()
        self.out = Publisher(self.store)
        self.sent: dict[bytes, int] = {}
        self.outcomes: Counter[str] = Counter()
        self.arrived = Latch()
        self.may_go_on = Latch()
        self.is_over = Latch()  # the call that is interrupted
        self.threads: list[threading.Thread] = []
        self.futures: list[Future[tm.Receipt]] = []
        self.shelf.hurdle = self._first

    def _first(self, lane: int, reservation: Reservation) -> None:
        self.shelf.hurdle = None
        self.arrived.set()
        assert self.may_go_on.wait(WITHIN_S)

    def send(self, row: bytes) -> None:
        try:
            self.sent[row] = self.out.send(row).first
            self.outcomes["sent"] += 1
        except (tm.StorageFailed, tm.Closed):
            self.outcomes["told"] += 1

    def send_soon(self, row: bytes) -> None:
        try:
            self.futures.append(self.out.send_soon(row))
        except (tm.StorageFailed, tm.Closed):
            self.outcomes["told"] += 1

    def start(self, call: Callable[[], object]) -> None:
        # A thread that hangs must not keep the tests from ending.
        self.threads.append(threading.Thread(target=call, daemon=True))
        self.threads[-1].start()

    def until_waiting(self, count: int) -> None:
        """So many sends wait in line, or are held up."""
        line = self.out._line
        while len(line._pending) + sum(map(len, line._groups)) < count:
            if self.is_over.wait(0.0005):
                break

    def end(self, number: int) -> None:
        """Everybody hears how it went, and everything confirmed is there, once."""
        for one in (self.is_over, self.arrived, self.may_go_on):
            one.set()
        self.start(self.out.close)
        for thread in self.threads:
            thread.join(WITHIN_S)
            assert not thread.is_alive(), f"interrupted for the {number}th time"
        for future in self.futures:
            assert future.done(), f"interrupted for the {number}th time"
        rows = read_all(self.store)
        assert len(rows) == len(set(rows))
        assert {row: rows.index(row) + 1 for row in self.sent} == self.sent


def _writes(scene: Scene) -> None:
    """This thread writes; two that send, and a future, wait for it."""

    def others() -> None:
        assert scene.arrived.wait(WITHIN_S)
        for row in (b"a", b"b"):
            scene.start(lambda row=row: scene.send(row))  # type: ignore[misc]
        scene.send_soon(b"c")
        scene.until_waiting(2)
        scene.may_go_on.set()

    scene.start(others)


def _waits(scene: Scene) -> None:
    """Another thread writes, and this one waits with two others behind it."""
    scene.start(lambda: scene.send(b"first"))
    assert scene.arrived.wait(WITHIN_S)
    scene.send_soon(b"c")

    def others() -> None:
        scene.until_waiting(3)
        scene.start(lambda: scene.send(b"a"))
        scene.until_waiting(3)
        scene.may_go_on.set()

    scene.start(others)


def _sends_soon(scene: Scene) -> None:
    scene.may_go_on.set()
    scene.start(lambda: scene.send(b"a"))


def _flushes(out: Publisher) -> None:
    out.send_soon(b"mine")
    out.flush()


CALLS: dict[str, tuple[Callable[[Scene], None], Callable[[Publisher], object]]] = {
    "send that writes": (_writes, lambda out: out.send(b"mine")),
    "send that waits": (_waits, lambda out: out.send(b"mine")),
    "send soon": (_sends_soon, lambda out: out.send_soon(b"mine")),
    "flush": (_sends_soon, _flushes),
    "close": (_sends_soon, lambda out: out.close()),
}


# Python swallows an interrupt that comes while it closes a generator.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", CALLS)
def test_nobody_waits_for_ever_behind_a_call_that_was_interrupted(name: str, lanes: int) -> None:
    prepare, call = CALLS[name]
    for number in range(1, 1_000):
        scene = Scene(lanes)
        prepare(scene)
        try:
            was_interrupted = interrupted_at(number, lambda out=scene.out: call(out), *SOURCES)  # type: ignore[misc]
        except (tm.Closed, tm.StorageFailed):
            was_interrupted = True
        scene.end(number)
        if not was_interrupted:
            break
    assert number > 10


class BrokenOff(list[Send]):
    """Ctrl-C comes between two of these, when they are gone through for the second time."""

    passes = 0

    def __iter__(self) -> Iterator[Send]:
        self.passes += 1
        for number, send in enumerate(super().__iter__()):
            if (self.passes, number) == (2, 2):
                raise KeyboardInterrupt
            yield send


def test_who_is_told_before_an_interrupt_keeps_nobody_behind_it_asleep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also not where that one has returned by the time that the rest are told."""
    scene = Scene(1)
    tell, see_out = Turn.tell, SendLine._see_out
    scene.start(lambda: scene.send(b"first"))
    assert scene.arrived.wait()

    def broken_off(self: Turn) -> None:
        if threading.current_thread() is threading.main_thread():
            monkeypatch.setattr(Turn, "tell", tell)
            self.ended = BrokenOff(self.ended)
        tell(self)

    def later(line: SendLine, turn: Turn, cause: BaseException) -> None:
        told, untold = turn.ended[1:]
        told.wake()  # As the first does, once it is told.
        asleep = untold.wakeup
        assert asleep is not None
        while b"a" not in scene.sent or not asleep.locked():
            if scene.is_over.wait(0.0005):
                break
        see_out(line, turn, cause)

    def others() -> None:
        for count, row in enumerate((b"a", b"b"), 2):
            scene.until_waiting(count)
            scene.start(lambda row=row: scene.send(row))  # type: ignore[misc]
        scene.until_waiting(4)
        scene.may_go_on.set()

    monkeypatch.setattr(Turn, "tell", broken_off)
    monkeypatch.setattr(SendLine, "_see_out", later)
    scene.start(others)
    with pytest.raises(KeyboardInterrupt):
        scene.out.send(b"mine")
    scene.end(1)
    assert scene.outcomes == {"sent": 3}
