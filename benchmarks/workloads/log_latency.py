"""From the call of `send` for one message to its receipt, by another process or another thread.

Messages come at random times, so that they meet the receiver in whatever it does while it waits.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

import tidemill as tm
from benchmarks import log_child
from benchmarks.child import Child
from benchmarks.result import Result
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB

_GAP_S = 0.01  # between messages, on average
_PERCENTILES = {"p50": 50, "p99": 99}


class _ToProcess:
    """The receiver is a process."""

    def __init__(self, name: str, address: str, messages: int) -> None:
        self.name = name
        self._address = address
        self._messages = messages
        self._log = tm.Log(address)
        self._publisher = self._log.publisher()
        self._child = Child("benchmarks.log_child")

    def turn(self) -> dict[str, float]:
        self._child.ask("receive_each", address=self._address, count=self._messages)
        _send_all(self._publisher, self._messages)
        return _percentiles(self._child.answer()["latencies_s"])

    def close(self) -> None:
        self._child.close()
        self._log.close()


class _ToThread:
    """The receiver is a thread of the same process, with the same log."""

    def __init__(self, name: str, address: str, messages: int) -> None:
        self.name = name
        self._messages = messages
        self._log = tm.Log(address)
        self._publisher = self._log.publisher()

    def turn(self) -> dict[str, float]:
        found: list[float] = []
        with self._log.receiver("thread", start="latest") as receiver:
            receiver.receive(wait_s=0)

            def receive() -> None:
                found.extend(log_child.latencies(receiver, self._messages))

            # A daemon, since it waits in vain if a send fails.
            thread = threading.Thread(target=receive, daemon=True)
            thread.start()
            _send_all(self._publisher, self._messages)
            thread.join()
        return _percentiles(found)

    def close(self) -> None:
        self._log.close()


def run(settings: Settings) -> list[Result]:
    messages = 50 if settings.quick else 500
    results: list[Result] = []
    contestants: list[Contestant] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder)))
        where = "log in a folder"
        contestants += [
            _ToProcess(f"{where}, to another process", str(folder / "process"), messages),
            _ToThread(f"{where}, to another thread", str(folder / "thread"), messages),
        ]
        where = "log on MariaDB"
        if (reason := MariaDB.missing()) is None:
            started = stack.enter_context(server(settings))
            contestants += [
                _ToProcess(
                    f"{where}, to another process", started.url("bench", "process"), messages
                ),
                _ToThread(f"{where}, to another thread", started.url("bench", "thread"), messages),
            ]
        else:
            results.append(Result(f"{where}: send to receive", None, "ms", note=reason))
        medians = interleave("log, send to receive", contestants, settings.rounds)
    conditions = {
        "operation": f"one message of 8 bytes, sent every {_GAP_S * 1e3:.0f} ms on average at "
        f"random times, durable; {messages} per round",
    }
    return results + [
        Result(f"{name}: send to receive, {metric}", seconds * 1e3, "ms", conditions=conditions)
        for name, metrics in medians.items()
        for metric, seconds in metrics.items()
    ]


def _send_all(publisher: tm.Publisher, messages: int) -> None:
    for _ in range(messages):
        time.sleep(random.expovariate(1 / _GAP_S))
        publisher.send(log_child.stamp())


def _percentiles(latencies_s: list[float]) -> dict[str, float]:
    values = np.percentile(latencies_s, list(_PERCENTILES.values()))
    return dict(zip(_PERCENTILES, map(float, values), strict=True))
