"""The process that is interrupted: signals fall into what its main thread sends, receives and acks,
while others send and receive. Each round has a log of its own, and is judged by rows.

    python -m tests.log.interrupted_child FOLDER SEED ROUNDS

It prints how often each thing happened, as JSON. A violation ends it with a traceback, and so does
a thread that does not come back.
"""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import tidemill as tm
from tests.faults.checker import Violation
from tests.interrupted_rounds import do_rounds, fall_into_calls, join
from tests.interrupting import Interrupts
from tests.log.sent import Sent
from tidemill.log.receiver import Received

SENDERS = 2
CALLS = 80  # of the main thread in a round, unless the publisher has to be opened again before


class Reading:
    """What one receiver gave to one thread, and what that thread acked."""

    def __init__(self, receiver: tm.Receiver) -> None:
        self.receiver = receiver
        self.given: list[tuple[int, int]] = []  # (first, last) of batches
        self.tried: set[int] = set()  # rows whose ack was called
        self.acked: set[int] = set()  # ... and returned
        self._unacked: list[Received] = []

    def receive(self) -> None:
        batch = self.receiver.receive(wait_s=0.001)
        if batch is not None:
            self.given.append((batch.first_seq, batch.last_seq))
            self._unacked.append(batch)

    def ack(self, draw: random.Random) -> None:
        if not self._unacked:
            return
        batch = self._unacked.pop(draw.randrange(len(self._unacked)))
        rows = range(batch.first_seq, batch.last_seq + 1)
        self.tried.update(rows)
        batch.ack()
        self.acked.update(rows)

    def check(self, pointer: int, interrupts: int) -> None:
        """Rows came in order and once. Those of a batch may be missing where an interrupt came
        between the receiver and this thread; then nothing behind it counts as acked.
        """
        gaps, end = 0, 0
        for first, last in self.given:
            if first <= end:
                raise Violation(f"rows {first} to {last} came behind row {end}")
            gaps += first > end + 1
            end = last
        if gaps > interrupts:
            raise Violation(
                f"{gaps} times rows are missing, and there were {interrupts} interrupts"
            )
        least, most = _prefix(self.acked), _prefix(self.tried)
        if not least <= pointer <= most:
            raise Violation(f"the pointer is {pointer}, and not within {least} and {most}")


class Round:
    """One log, and all who work on it."""

    def __init__(self, log: tm.Log) -> None:
        self.out = log.publisher()
        self.mine = Reading(log.receiver("mine", rows_max=7))
        self.theirs = Reading(log.receiver("theirs", rows_max=7))
        self.sent = Sent()
        self._is_over = threading.Event()
        self._failures: list[BaseException] = []
        self._soon: list[tuple[int, Future[tm.Receipt]]] = []

    def step(self, draw: random.Random) -> Callable[[], None]:
        """What the main thread does next; a send is noted before it is tried."""
        match draw.choice(["send", "send", "send soon", "flush", "receive", "receive", "ack"]):
            case "send":
                return self._sending(draw)
            case "send soon":
                number, rows = self.sent.attempt(1)
                return lambda: self._soon.append((number, self.out.send_soon(rows)))
            case "flush":
                return self.out.flush
            case "receive":
                return self.mine.receive
        return lambda: self.mine.ack(draw)

    def _sending(self, draw: random.Random) -> Callable[[], None]:
        number, rows = self.sent.attempt(draw.choice([1, 1, 3, 20]))
        return lambda: self.sent.confirmed(number, self.out.send(rows).first)

    def _send_on(self, draw: random.Random) -> None:
        while not self._is_over.is_set():
            self._sending(draw)()

    def _receive_on(self, draw: random.Random) -> None:
        while not self._is_over.is_set():
            self.theirs.receive()
            self.theirs.ack(draw)

    def _work(self, task: Callable[[random.Random], None], draw: random.Random) -> None:
        try:
            task(draw)
        except (tm.StorageFailed, tm.Closed):
            self._is_over.set()
        except BaseException as failure:  # noqa: BLE001 (raised again by whoever joins)
            self._failures.append(failure)

    @contextmanager
    def others(self, draw: random.Random) -> Iterator[threading.Event]:
        """While the block runs, other threads work; behind it all is closed."""
        tasks = [*[self._send_on] * SENDERS, self._receive_on]
        threads = [self._started(self._work, task, random.Random(draw.random())) for task in tasks]
        yield self._is_over
        self._is_over.set()
        closing = [self.out.close, self.mine.receiver.close, self.theirs.receiver.close]
        join([*threads, *map(self._started, closing)])
        if self._failures:
            raise self._failures[0]

    def hear(self) -> int:
        """Note how the sends went that nobody waited for; how many of them are confirmed."""
        confirmed = 0
        for number, future in self._soon:
            if not future.done():
                raise AssertionError("a future is never resolved")
            if future.exception() is None:
                self.sent.confirmed(number, future.result().first)
                confirmed += 1
        return confirmed

    @staticmethod
    def _started(target: Callable[..., None], *arguments: object) -> threading.Thread:
        # A thread that hangs must not keep the process from ending.
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()
        return thread


def _prefix(rows: set[int]) -> int:
    """The last row up to which all are there."""
    end = 0
    while end + 1 in rows:
        end += 1
    return end


def run(folder: Path, draw: random.Random) -> Counter[str]:
    """One round; how often each thing happened."""
    with tm.Log(folder, sync=draw.choice(["full", "none"])) as log:
        work = Round(log)
        interrupts = Interrupts(draw)
        with work.others(draw) as is_over:
            happened = fall_into_calls(interrupts, CALLS, lambda: work.step(draw), is_over)
        happened["sent soon"] = work.hear()
    with tm.Log(folder) as log:
        work.sent.check(log.read(1, rows_max=10**6).rows())
        pointers = log.consumers()
        work.mine.check(pointers["mine"], happened["KeyboardInterrupt"])
        work.theirs.check(pointers["theirs"], 0)
    happened["sent"] = work.sent.confirmations
    happened["received"] = len(work.mine.given)
    happened["acked"] = pointers["mine"]
    return happened


def main(folder: str, seed: int, rounds: int) -> None:
    draw = random.Random(seed)
    do_rounds(Path(folder), rounds, lambda path: run(path, draw))


if __name__ == "__main__":
    _, at, number, count = sys.argv
    main(at, int(number), int(count))
