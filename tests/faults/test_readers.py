"""Ten reader processes scan while an owner pushes, pops, reclaims, is killed and starts again.

Whatever a reader saw must be the queue as it was after some number of operations: at least those
that had returned before it looked, at most those that had begun when it was done. So no item is
torn, lost or doubled. Afterwards the disk that the readers held comes back, also of those that were
killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.watched_child import SEGMENT_BYTES, digest, open_owner
from tests.files.small_segments import disk_bytes

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
ROOT = Path(__file__).resolve().parents[2]
LOOKS_MIN = 5  # of each reader at each life of an owner


class _States:
    """The queue after each operation of the log, by where its lines begin and end."""

    def __init__(self, text: bytes) -> None:
        self.items: list[tuple[int, int]] = []
        self.digests: list[str] = []
        self.counts: list[int] = []
        self.begun: list[int] = []  # offset behind the line that announced state k
        self.done: list[int] = []  # ... behind the line that confirmed it
        self.lives = 0
        self._add(0, 0)
        self._under_way: tuple[list[tuple[int, int]], int] | None = None
        offset = 0
        for line in text.splitlines(keepends=True):
            offset += len(line)
            if line.endswith(b"\n"):
                self._learn(json.loads(line), offset)

    def _learn(self, words: list[object], offset: int) -> None:
        match words:
            case ["push", int(first), list(keys)]:
                items = list(self.items)
                for at, key in enumerate(keys):
                    insort(items, (key, first + at))
                self._under_way = items, offset
            case ["pop", int(count)]:
                self._under_way = self.items[count:], offset
            case ["done"]:
                assert self._under_way is not None
                self.items, begun = self._under_way
                self._under_way = None
                self._add(begun, offset)
            case ["opened", str(found)]:
                self.lives += 1
                if self._under_way is not None and self.digests[-1] != found:
                    # What was under way when the owner was killed has happened.
                    self.items, begun = self._under_way
                    self._add(begun, offset)
                self._under_way = None
                assert self.digests[-1] == found, "the owner itself found something else"

    def _add(self, begun: int, done: int) -> None:
        keys = [key for key, _ in self.items]
        self.digests.append(digest(keys, [number for _, number in self.items]))
        self.counts.append(len(self.items))
        self.begun.append(begun)
        self.done.append(done)

    def check(self, note: dict[str, object]) -> bool:
        """Whether what a reader saw is the queue of a moment in which it looked."""
        before, after = int(str(note["before"])), int(str(note["after"]))
        least = bisect_left(self.done, before + 1) - 1
        most = bisect_left(self.begun, after + 1) - 1
        if "count" in note:
            return note["count"] in self.counts[least : most + 1]
        return note["digest"] in self.digests[least : most + 1]


def _start(*arguments: object) -> subprocess.Popen[bytes]:
    paths = [str(ROOT), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "tests.faults.watched_child", *map(str, arguments)]
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _end(process: subprocess.Popen[bytes], *, kill: bool) -> None:
    if kill:
        process.kill()
    _, said = process.communicate(timeout=60)
    assert process.returncode == (-signal.SIGKILL if kill else 0), said.decode()


@contextmanager
def _running(processes: list[subprocess.Popen[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()


def _wait_for(condition: Callable[[], bool], processes: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        for process in processes:
            if process.poll() is not None:
                raise AssertionError((process.communicate()[1] or b"").decode())
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _looks(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _watch(tmp_path: Path, readers: int, lives: int, log_bytes: int, seed: int) -> tuple[int, int]:
    """Returns how many looks were judged, and how many operations there were."""
    folder, log = tmp_path / "queue", tmp_path / "log"
    draw = random.Random(seed)
    open_owner(folder).close()
    notes = [tmp_path / f"notes-{number}" for number in range(readers)]
    log.touch()
    looking = [_start("read", folder, log, path) for path in notes]
    with _running(looking):
        _wait_for(lambda: all(_size(path) for path in notes), looking)
        for life in range(lives):
            sync = ("full", "none", "data", "index")[life % 4]
            owner = _start("own", folder, log, draw.randrange(1 << 30), sync, life * 1_000_000)
            with _running([owner]):
                begun = _size(log)
                _wait_for(lambda begun=begun: _size(log) > begun, [owner, *looking])  # type: ignore[misc]
                looks = [_looks(path) for path in notes]
                _wait_for(
                    lambda begun=begun: _size(log) >= begun + log_bytes,  # type: ignore[misc]
                    [owner, *looking],
                )
                # However slow they are beside it, all have looked at this life of it.
                for path, before in zip(notes, looks, strict=True):
                    _wait_for(
                        lambda path=path, before=before: _looks(path) >= before + LOOKS_MIN,  # type: ignore[misc]
                        [owner, *looking],
                    )
                _end(owner, kill=True)
        sizes = [_size(path) for path in notes]
        _wait_for(
            lambda: all(_size(path) > size for path, size in zip(notes, sizes, strict=True)),
            looking,
        )
        for number, process in enumerate(looking):
            _end(process, kill=number % 2 == 0)
    judged = _judge(log, notes, lives, folder)
    _check_disk(folder)
    return judged


def _judge(log: Path, notes: list[Path], lives: int, folder: Path) -> tuple[int, int]:
    with open_owner(folder) as owner:
        table = owner.scan(columns=["key", "value"]).read_all()
        keys = table["key"].to_pylist()
        numbers = [int(value.split(b":")[1]) for value in table["value"].to_pylist()]
    # The last life was ended in the middle of something, too.
    text = log.read_bytes() + json.dumps(["opened", digest(keys, numbers)]).encode() + b"\n"
    states = _States(text)
    assert states.lives == lives + 1
    looks = 0
    for path in notes:
        lines = path.read_bytes().splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                looks += 1
                note = json.loads(line)
                assert states.check(note), f"{path.name} saw what never was: {note}"
    return looks, len(states.counts)


def _check_disk(folder: Path) -> None:
    """What the readers held is given back."""
    with open_owner(folder) as owner:
        owner.clear()
        owner._core.maintenance.run_round()
        assert list((folder / "readers").iterdir()) == []
        assert disk_bytes(folder) <= 3 * SEGMENT_BYTES


def test_readers_see_only_what_was(tmp_path: Path) -> None:
    looks, operations = _watch(tmp_path, readers=2, lives=2, log_bytes=8_000, seed=1)
    assert looks > 10
    assert operations > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20 if SOAK else 1))
def test_ten_readers_see_only_what_was(
    seed: int, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    looks, operations = _watch(
        tmp_path, readers=10, lives=8 if SOAK else 4, log_bytes=12_000, seed=seed
    )
    assert looks > 200
    assert operations > 600
    tally("looks of readers beside an owner that was killed and restarted", looks)
    tally("operations that readers looked on", operations)
