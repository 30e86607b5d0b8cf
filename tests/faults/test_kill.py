"""A real process on a real disk, killed at any time: what it was told is true afterwards.

The child says on a pipe what it attempts and what it was told; it is killed after so many lines, or
after a random time, or by strace at a given system call. Then the queue is opened here and judged
by items. Each folder goes through several lives.
"""

from __future__ import annotations

import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.faults.checker import MAIN, Pair, PrefixModel
from tests.faults.driven_queue import contents
from tests.faults.history import History
from tests.faults.killed_child import FORK, open_queue
from tests.faults.scripted_child import script
from tests.services.server import skip_or_fail
from tidemill.files.queue.consuming_end import ConsumingEnd

Tally: TypeAlias = Callable[[str, int], None]

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
ROOT = Path(__file__).resolve().parents[2]
LIVES = 10
FOLDERS = 500 if SOAK else 11
SCRIPTS = 200 if SOAK else 6


class _Folder(ABC):
    """A folder on which one child after the other works, until it is killed."""

    child: str  # the module that it runs

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.draw = random.Random(seed)
        self.value = 0  # the first that the next child pushes
        self.kills = 0

    @abstractmethod
    def learn(self, words: list[Any], seed: int) -> None:
        """Take in what a child said before it was killed."""

    @abstractmethod
    def check(self) -> None:
        """Open what is left, and hold it against what the children said."""

    def live(self, *, prefix: Sequence[str] = (), sync: str = "full") -> None:
        """Start a child, let it work, and kill it."""
        reading, writing = os.pipe()
        seed = self.draw.randrange(1 << 30)
        command = [sys.executable, "-m", self.child, str(self.path)]
        command += [str(self.value), str(seed), sync, str(writing)]
        paths = [str(ROOT), *sys.path]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        child = subprocess.Popen(
            [*prefix, *command],
            cwd=ROOT,
            env=environment,
            pass_fds=[writing],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        os.close(writing)
        try:
            text = self._watch(child, reading, kills=not prefix)
        finally:
            os.close(reading)
            if child.poll() is None:
                child.kill()
            child.wait()
        assert child.stderr is not None
        said = child.stderr.read().decode()
        child.stderr.close()
        assert child.returncode == -signal.SIGKILL, (child.returncode, said)
        self.kills += 1
        self.learn([json.loads(line) for line in text.split(b"\n")[:-1]], seed)

    def _watch(self, child: subprocess.Popen[bytes], reading: int, *, kills: bool) -> bytes:
        """Read what the child says until it is dead; kill it when its time has come."""
        lines_max = self.draw.choice([1, 2, 7, 30, 31, 60]) if self.draw.random() < 0.6 else None
        deadline = time.monotonic() + (30 if lines_max else self.draw.uniform(0.02, 0.3))
        is_open = lines_max is not None
        parts: list[bytes] = []
        while True:
            left_s = max(deadline - time.monotonic(), 0) if is_open and kills else 30
            ready, _, _ = select.select([reading], [], [], left_s)
            if not ready and left_s == 30:
                raise AssertionError("the child says nothing and does not die")
            data = os.read(reading, 1 << 16) if ready else b""
            if ready and not data:
                return b"".join(parts)
            parts.append(data)
            if not is_open and b"opened" in data:
                # A random time counts from here, or it would mostly fall into the imports.
                is_open = True
                deadline = time.monotonic() + self.draw.uniform(0, 0.15)
            lines = sum(part.count(b"\n") for part in parts)
            is_due = lines >= lines_max if lines_max else time.monotonic() >= deadline
            if kills and is_open and is_due:
                child.kill()
            assert lines < 100_000, "the child was not killed"


class _Judged(_Folder):
    """By items: the child pushes and pops, and tells all that it is told."""

    child = "tests.faults.killed_child"

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self.history = History(forks=(MAIN, FORK))

    def learn(self, words: list[Any], seed: int) -> None:
        push = pop = -1
        for said in words:
            match said:
                case ["push", pairs]:
                    push = self.history.push_attempted(_pairs(pairs))
                    self.value += len(pairs)
                case ["pushed"]:
                    self.history.push_acknowledged(push)
                case ["pop", fork, count]:
                    pop = self.history.pop_attempted(count, fork)
                case ["popped", pairs]:
                    self.history.pop_acknowledged(pop, _pairs(pairs))
        # The last line may have been lost together with the attempt it told of.
        self.value += 100

    def check(self) -> None:
        with open_queue(str(self.path)) as queue:
            ends: dict[str, ConsumingEnd] = {MAIN: queue, FORK: queue.fork(FORK)}
            found = {name: end.peek(-1).rows() for name, end in ends.items()}
            for name, end in ends.items():
                assert len(end) == len(found[name])
        self.history.check(found)
        self._settle(found)

    def _settle(self, found: dict[str, list[Pair]]) -> None:
        """What was under way is decided now, and must not change any more."""
        history = self.history
        if history.pushes and history.pushes[-1].acknowledged is None:
            there = {pair for pairs in found.values() for pair in pairs}
            if there.intersection(history.pushes[-1].pairs):
                history.push_acknowledged(len(history.pushes) - 1)
            else:
                history.pushes.pop()
        if history.pops and history.pops[-1].pairs is None:
            fork = history.pops[-1].fork
            told = {pair for pop in history.pops if pop.fork == fork for pair in pop.pairs or ()}
            pushed = [pair for push in history.pushes for pair in push.pairs]
            gone = [pair for pair in pushed if pair not in told and pair not in set(found[fork])]
            history.pop_acknowledged(len(history.pops) - 1, sorted(gone))


class _Scripted(_Folder):
    """By the model: the child does anything that can be done, as a script says."""

    child = "tests.faults.scripted_child"

    def __init__(self, path: Path, seed: int) -> None:
        super().__init__(path, seed)
        self.model = PrefixModel()

    def learn(self, words: list[Any], seed: int) -> None:
        model = self.model
        steps = script(self.value, seed, [fork for fork in model.state_after(0) if fork != MAIN])
        for said in words:
            match said:
                case ["tries", number]:
                    next(steps).note(model)
                    assert model.attempted == number
                case ["did", number]:
                    model.acknowledge(number)
        self.value += 100_000

    def check(self) -> None:
        with open_queue(str(self.path)) as queue:
            survived = self.model.check(contents(queue))
        # What was under way is decided now, and must not change any more.
        self.model = self.model.resumed(survived)


def _pairs(found: list[list[object]]) -> list[Pair]:
    return [(int(str(key)), str(value).encode()) for key, value in found]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FOLDERS))
def test_a_killed_process_loses_nothing_it_was_told(
    seed: int, tmp_path: Path, tally: Tally
) -> None:
    folder = _Judged(tmp_path / "queue", seed)
    _go_through_lives(folder, seed)
    tally("processes killed", folder.kills)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SCRIPTS))
def test_a_process_killed_in_the_middle_of_anything_has_done_it_or_not(
    seed: int, tmp_path: Path, tally: Tally
) -> None:
    folder = _Scripted(tmp_path / "queue", seed)
    _go_through_lives(folder, seed)
    tally("processes killed in the middle of anything", folder.kills)


def _go_through_lives(folder: _Folder, seed: int) -> None:
    for life in range(LIVES):
        folder.live(sync=("full", "none", "data", "index")[life % 4 if seed % 2 else 0])
        folder.check()
    assert folder.kills == LIVES


def test_a_process_killed_once_loses_nothing_it_was_told(tmp_path: Path) -> None:
    folder = _Judged(tmp_path / "queue", 1_000)
    folder.live()
    folder.check()
    assert folder.kills == 1


CALLS = {
    "mkdir": [1, 2],
    "rename": [1],
    "pwritev2": [1, 2, 3, 4, 7, 40],
    "fdatasync": [1, 2, 5, 30],
    "fsync": [2, 4, 6, 8],
    "unlink": [1, 2, 3],
}


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_process_killed_at_a_system_call_loses_nothing_it_was_told(
    call: str, tmp_path: Path, tally: Tally
) -> None:
    strace = shutil.which("strace") or ""
    if not strace:
        skip_or_fail("strace is not installed: make services")
    trial = subprocess.run([strace, "-o", os.devnull, "true"], capture_output=True)
    if trial.returncode:
        pytest.skip("strace may not trace here")
    for number in CALLS[call]:
        folder = _Judged(tmp_path / f"queue-{number}", number)
        inject = f"inject={call}:signal=KILL:when={number}"
        folder.live(prefix=[strace, "-f", "-qq", "-o", os.devnull, "-e", inject])
        folder.check()
        folder.live()
        folder.check()
        assert folder.kills == 2
    tally("processes killed at a system call", len(CALLS[call]))
