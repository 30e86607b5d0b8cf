"""A pop, peek, read or scan that breaks off while frames are read: the next one begins where the
last that succeeded ended, and passes over nothing.

What a merge had in its hands when it broke off would otherwise be passed over, and consumed by the
next take without ever having been handed out.
"""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.errors import StorageFailed
from tidemill.files.folder import folder
from tidemill.files.format.frame_table import Entry
from tidemill.files.merge.frame_reader import FrameReader
from tidemill.files.merge.merge import Merge
from tidemill.files.merge.run import Run
from tidemill.limits import KEPT_BYTES_MAX

Row = tuple[int, bytes]

FRAMES = 60
ROWS = 10


class _Reads:
    """Lets every reading of a frame from some call on break off now and then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failure: type[BaseException]) -> None:
        self.broken = 0
        self.every = 0  # 0: none
        calls = 0
        read = FrameReader._own

        def breaking(reader: FrameReader, entry: Entry, payload: pa.Buffer) -> Run:
            nonlocal calls
            calls += 1
            if self.every and calls % self.every == 0:
                self.broken += 1
                raise failure("broken off")
            return read(reader, entry, payload)

        monkeypatch.setattr(FrameReader, "_own", breaking)


class _Model:
    """The rows of a queue as a sorted list."""

    def __init__(self, seed: int, spread: int) -> None:
        self.rows: list[Row] = []
        self._random = random.Random(seed)
        self._spread = spread
        self._count = 0

    def more(self) -> list[Row]:
        """Fresh rows, which the model takes note of as pushed."""
        start = self._random.randrange(2_000)
        keys = [start + self._random.randrange(self._spread) for _ in range(ROWS)]
        rows = [(key, b"%d" % (self._count + number)) for number, key in enumerate(keys)]
        self._count += ROWS
        self.rows = sorted(self.rows + rows, key=lambda row: row[0])
        return rows


def _few_rows_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames that overlap are then merged by passes."""
    defaults: Any = Merge.__init__.__kwdefaults__
    monkeypatch.setitem(defaults, "bytes_max", 8 * 1024)


@pytest.mark.parametrize("failure", [KeyboardInterrupt, StorageFailed, MemoryError])
@pytest.mark.parametrize("spread", [30, 3_000])
@pytest.mark.parametrize("memory", ["plenty", "little"])
@pytest.mark.parametrize("every", [3, 7])
def test_nothing_is_passed_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: type[BaseException],
    spread: int,
    memory: str,
    every: int,
) -> None:
    if memory == "little":
        _few_rows_in_memory(monkeypatch)
    reads = _Reads(monkeypatch, failure)
    model = _Model(every, spread)
    draw = random.Random(spread)
    with tm.PriorityQueue(tmp_path, sync="none", maintain_in_background=False) as queue:
        for _ in range(FRAMES):
            queue.push(model.more())
        for step in range(2_000):
            # As it makes no difference where one breaks off, each succeeds in the end.
            reads.every = every if draw.random() < 0.7 else 0
            count = draw.randrange(1, 40)
            expected = model.rows[:count]
            with suppress(failure):
                match step % 4:
                    case 0:
                        assert queue.peek(count).rows() == expected
                    case 1:
                        with queue.read(count) as read:
                            assert read.batch.rows() == expected
                        del model.rows[:count]
                    case _:
                        assert queue.pop(count).rows() == expected
                        del model.rows[:count]
            if step < 200 and step % 3 == 0:
                # Some are kept in memory, the others are read back.
                monkeypatch.setattr(folder, "KEPT_BYTES_MAX", 0 if step % 12 else KEPT_BYTES_MAX)
                queue.push(model.more())
            if not model.rows:
                break
        assert (len(queue), len(model.rows)) == (0, 0)
        assert reads.broken > 3
    reads.every = 0
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue.pop(-1)) == 0


def test_a_pop_stops_at_a_damaged_frame_however_often_it_is_tried(tmp_path: Path) -> None:
    """Told to abort, a queue hands out what lies before the damage, and nothing behind it."""
    with tm.PriorityQueue(tmp_path, sync="none", maintain_in_background=False) as queue:
        for frame in range(400):
            queue.push([(100 * frame + number, b"<%06d>" % frame) for number in range(100)])
        (segment,) = (tmp_path / "journal").glob("*.segment")
        with segment.open("r+b") as file:
            place = file.read().index(b"<000200>")
            file.seek(place)
            file.write(b"[")
        popped: list[int] = []
        for _ in range(500):
            with suppress(tm.Corrupt):
                popped += queue.pop(50).keys.to_pylist()
        assert popped == list(range(200 * 100))
        with segment.open("r+b") as file:
            file.seek(place)
            file.write(b"<")
        while len(batch := queue.pop(1_000)):
            popped += batch.keys.to_pylist()
        assert popped == list(range(400 * 100))


def test_a_scan_that_broke_off_stays_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = _Reads(monkeypatch, StorageFailed)
    model = _Model(1, 30)
    with tm.PriorityQueue(tmp_path, sync="none", maintain_in_background=False) as queue:
        for _ in range(200):
            queue.push(model.more())
        reads.every = 100
        scan = queue.scan(columns=["key"])
        for _ in range(3):
            with pytest.raises(StorageFailed, match="broken off"):
                scan.read_all()
        assert reads.broken == 1
        reads.every = 0
        keys = queue.scan(columns=["key"]).read_all()["key"].to_pylist()
        assert keys == [key for key, _ in model.rows]
