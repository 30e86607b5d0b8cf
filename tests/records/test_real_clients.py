"""Processes that share a ring on a real store, and are stopped for longer than their lock lasts, or
killed, right before and after every kind of call to the store: what they did is what a bounded
queue does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import tidemill as tm
from tests.records.history import Called, History, Result, check, drained
from tests.records.ring_client import CAPACITY, LOCK_MS

_CALLS = 30
_STEPS = ("look", "grant", "buffer", "commit", "read")
_WHENS = ("before", "after")
# One client stops before every kind of step, another after it.
_STOPS = {when: [(step, 3, when, "SIGSTOP") for step in _STEPS] for when in _WHENS}
_KILLS = [
    [("grant", 3, "after", "SIGKILL")],
    [("buffer", 3, "after", "SIGKILL")],
    [("commit", 3, "before", "SIGKILL")],
    [("commit", 3, "after", "SIGKILL")],
]
_NOT_MEMORY = ["redis", "mysql", "etcd"]


class Client:
    """One process, and what it has told."""

    def __init__(self, url: str, name: str, seed: str, faults: list[Any], folder: Path) -> None:
        self.seed = seed
        self._path = folder / seed
        run = [sys.executable, "-m", "tests.records.ring_client", url, name, seed, str(_CALLS)]
        self.process = subprocess.Popen([*run, str(self._path), json.dumps(faults)])

    def is_stopped(self) -> bool:
        try:
            return psutil.Process(self.process.pid).status() == psutil.STATUS_STOPPED
        except psutil.NoSuchProcess:
            return False

    def calls(self) -> dict[str, Called]:
        """Its calls by their id."""
        found: dict[str, Called] = {}
        for line in self._path.read_text().splitlines() if self._path.exists() else ():
            said = json.loads(line)
            if "began" in said:
                found[said["id"]] = Called(
                    client=self.seed,
                    kind="enqueue" if said["values"] else "dequeue",
                    began=said["began"],
                    values=tuple(said["values"]),
                    count=said["count"],
                )
            else:
                found[said["id"]].ended = said["ended"]
                found[said["id"]].result = _result(said["result"])
        return found


def _result(said: Any) -> Any:
    words = {"full": Result.FULL, "unknown": Result.UNKNOWN, "nothing": Result.NOTHING}
    if isinstance(said, str):
        return words[said]
    return said if isinstance(said, int) else tuple((offset, value) for offset, value in said)


def _outcome(ring: tm.Ring, id: str) -> Any:
    """What became of a call whose process was killed: asking ends it when its lock has expired."""
    deadline_s = time.monotonic() + 30
    while (found := ring.outcome(id)).state == "running":
        assert time.monotonic() < deadline_s
        time.sleep(LOCK_MS / 1000)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", _NOT_MEMORY)
def test_clients_that_are_stopped_and_killed_leave_a_ring_that_is_whole(
    url: str, kind: str, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    name = url.rpartition("/")[2]
    with tm.Ring(url, capacity=CAPACITY, slots_per_record=4, lock_ms=LOCK_MS) as ring:
        clients = [
            *(Client(url, name, when, stops, tmp_path) for when, stops in _STOPS.items()),
            Client(url, name, "k0", _KILLS[0], tmp_path),
        ]
        stops = kills = 0
        ended: dict[str, tuple[Called, Any]] = {}
        running = list(clients)
        while running:
            for client in list(running):
                if client.is_stopped():
                    # Longer than its lock lasts, so that others break it.
                    time.sleep(3 * LOCK_MS / 1000)
                    os.kill(client.process.pid, signal.SIGCONT)
                    stops += 1
                if (status := client.process.poll()) is None:
                    continue
                running.remove(client)
                if status == 0:
                    continue
                assert status == -signal.SIGKILL
                kills += 1
                for id, call in client.calls().items():
                    if call.result is Result.PENDING:
                        ended[id] = (call, _outcome(ring, id))
                if kills < len(_KILLS):
                    following = Client(url, name, f"k{kills}", _KILLS[kills], tmp_path)
                    clients.append(following)
                    running.append(following)
            time.sleep(0.01)
        info = ring.info()
        left = drained(ring.get_many(info.head, CAPACITY))
    calls = {id: call for client in clients for id, call in client.calls().items()}
    _resolve(calls, ended)
    history = History(CAPACITY, calls=list(calls.values()))
    check(history, left)
    # Every fault happened, and locks were broken: more grants than operations that ended well.
    assert (stops, kills) == (len(_STEPS) * len(_WHENS), len(_KILLS))
    done = [call for call in calls.values() if isinstance(call.result, int | tuple)]
    changed = [call for call in done if call.result != ()]
    assert info.fence > len(changed)
    assert len(done) > 40
    tally(f"pauses of clients on {kind} that outlast their lock", stops)
    tally(f"kills of clients on {kind}", kills)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["etcd"])
def test_the_lock_of_a_killed_client_expires_for_one_that_has_just_come(
    url: str, kind: str, tmp_path: Path
) -> None:
    name = url.rpartition("/")[2]
    tm.Ring(url, capacity=CAPACITY).close()
    killed = Client(url, name, "k", [("grant", 0, "after", "SIGKILL")], tmp_path)
    assert killed.process.wait() == -signal.SIGKILL
    # Its own patience is a third of what the other may hold the lock for.
    with tm.Ring(url, lock_ms=LOCK_MS // 9) as ring:
        assert ring.info().locked
        assert ring.enqueue(b"a") == 0


def _resolve(calls: dict[str, Called], ended: dict[str, tuple[Called, Any]]) -> None:
    """Put in what is known of the calls whose processes were killed."""
    values = {
        call.result + index: value
        for call in calls.values()
        if isinstance(call.result, int)
        for index, value in enumerate(call.values)
    }
    for id, (_, outcome) in ended.items():
        if outcome.state == "committed" and outcome.kind == "enqueue":
            calls[id].result = outcome.offset
            values.update(enumerate(calls[id].values, outcome.offset))
    for id, (_, outcome) in ended.items():
        if outcome.state == "committed" and outcome.kind == "dequeue":
            offsets = range(outcome.offset, outcome.offset + outcome.count)
            calls[id].result = tuple((offset, values[offset]) for offset in offsets)
        elif outcome.state != "committed":
            calls[id].result = Result.NOTHING
