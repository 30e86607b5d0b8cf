"""Whatever breaks off in the middle, by Ctrl-C or for want of memory, disk or threads: the handle
goes on as if it had not begun, or takes no more writes. It never goes on with half of it.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tidemill.errors import DiskFull, StorageFailed
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.journal.journal import Journal
from tidemill.files.journal.segment import Segment
from tidemill.files.readers import follower
from tidemill.files.upkeep import queue_core
from tidemill.files.upkeep.maintenance import Maintenance

ROWS = 100


def _queue(path: Path, **options: Any) -> tm.PriorityQueue:
    given = {"sync": "none", "maintain_in_background": False, **options}
    return tm.PriorityQueue(path, **given)


def _fill(queue: tm.PriorityQueue, frames: int, *, item_bytes: int = 8, step: int = ROWS) -> None:
    for frame in range(frames):
        value = b"<%06d>" % frame + bytes(item_bytes - 8)
        queue.push([(step * frame + row, value) for row in range(ROWS)])


def _damage(path: Path, frame: int) -> None:
    """Spoil one value of a frame."""
    for segment in (path / "journal").glob("*.segment"):
        data = segment.read_bytes()
        place = data.find(b"<%06d>" % frame)
        if place >= 0:
            with segment.open("r+b") as file:
                file.seek(place)
                file.write(b"[")
            return
    raise AssertionError(f"frame {frame} is nowhere")


class _Once:
    """Stands in for a function, and raises when it is first called."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, failure: BaseException
    ) -> None:
        self.is_done = False
        real = getattr(owner, name)

        def broken(*arguments: Any, **options: Any) -> Any:
            if not self.is_done:
                self.is_done = True
                raise failure
            return real(*arguments, **options)

        monkeypatch.setattr(owner, name, broken)


@pytest.mark.parametrize("failure", [DiskFull("no room"), KeyboardInterrupt()])
def test_a_frame_is_not_passed_over_before_it_was_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    with _queue(tmp_path, on_corruption="continue") as queue:
        _fill(queue, 20)
        _damage(tmp_path, 5)
        broken = _Once(monkeypatch, queue_core, "keep_copy", failure)
        popped: list[int] = []
        for _ in range(60):
            with suppress(type(failure)):
                popped += queue.pop(50).keys.to_pylist()
        assert broken.is_done
        assert popped == [key for key in range(20 * ROWS) if key // ROWS != 5]
        assert (len(queue), queue.stats().quarantined) == (0, 1)
        assert len(list((tmp_path / "quarantine").iterdir())) > 0


def test_a_shovel_moves_all_but_the_damaged_frame_though_setting_it_aside_failed_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _queue(tmp_path / "source", on_corruption="continue")
    target = _queue(tmp_path / "target", segment_bytes=1024 * 1024)
    audit = source.fork("audit")
    _fill(source, 100, item_bytes=300)
    _damage(tmp_path / "source", 60)
    broken: list[_Once] = []

    def on_progress(moved: int) -> None:
        if not broken:
            broken.append(_Once(monkeypatch, queue_core, "keep_copy", DiskFull("no room")))
            with pytest.raises(DiskFull):
                audit.delete(60 * ROWS, 60 * ROWS + 1)

    moved = source.shovel(target, on_progress=on_progress)
    assert [one.is_done for one in broken] == [True]
    keys = target.pop(-1).keys.to_pylist()
    assert keys == [key for key in range(100 * ROWS) if key // ROWS != 60]
    assert (moved, len(source)) == (99 * ROWS, 0)
    source.close()
    target.close()


def test_a_shovel_passes_over_nothing_when_damage_ends_a_chunk_of_several_buckets(
    tmp_path: Path,
) -> None:
    source = _queue(tmp_path / "source", on_corruption="continue", bucket=tm.Width(ROWS))
    target = _queue(tmp_path / "target")
    source.fork("audit")
    _fill(source, 30)
    _damage(tmp_path / "source", 20)
    assert source.shovel(target) == 29 * ROWS
    keys = target.pop(-1).keys.to_pylist()
    assert keys == [key for key in range(30 * ROWS) if key // ROWS != 20]
    source.close()
    target.close()


@pytest.mark.parametrize("victim", ["source", "target"])
def test_a_hand_over_that_is_interrupted_at_a_new_segment_leaves_the_handle_in_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, victim: str
) -> None:
    queues = {
        name: _queue(tmp_path / name, sync="full", segment_bytes=1024 * 1024)
        for name in ("source", "target")
    }
    _fill(queues["source"], 30, item_bytes=500)
    start = Journal._start_segment

    def interrupted(self: Journal, *arguments: Any, **options: Any) -> Segment:
        segment = start(self, *arguments, **options)
        if self.folder.parent.name == victim:
            raise KeyboardInterrupt
        return segment

    monkeypatch.setattr(Journal, "_start_segment", interrupted)
    with pytest.raises(KeyboardInterrupt):
        queues["source"].shovel(queues["target"])
    monkeypatch.undo()
    with pytest.raises(StorageFailed, match="interrupted"):
        queues[victim].push([(-1, b"refused")])
    for queue in queues.values():
        queue.close()
    left = 0
    for name in queues:
        with tm.PriorityQueue(tmp_path / name) as queue:
            seqs = queue.peek(-1).seqs.to_pylist()
            assert len(set(seqs)) == len(seqs) == len(queue)
            left += len(queue)
    # In both at most, in neither never.
    assert left in (30 * ROWS, 60 * ROWS)


def test_a_hand_over_that_is_interrupted_at_a_rename_gives_no_number_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _queue(tmp_path / "source", sync="full", segment_bytes=1024 * 1024)
    target = _queue(tmp_path / "target", sync="full", segment_bytes=1024 * 1024)
    _fill(source, 30, item_bytes=500)
    broken = _Once(monkeypatch, LocalFileSystem, "rename", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        source.shovel(target)
    assert broken.is_done
    with pytest.raises(StorageFailed, match="interrupted"):
        target.push([(-1, b"refused")])
    source.close()
    target.close()
    with tm.PriorityQueue(tmp_path / "target") as again:
        again.push([(-1, b"taken")])
        seqs = again.pop(-1).seqs.to_pylist()
        assert len(set(seqs)) == len(seqs) == 30 * ROWS + 1


def test_a_segment_that_is_not_the_one_that_was_opened_is_never_believed(tmp_path: Path) -> None:
    queue = _queue(tmp_path, segment_bytes=1024 * 1024)
    _fill(queue, 30, item_bytes=500)
    segment = queue._core.folder.journal.segments[1]
    assert segment.summary is not None
    # The last frames read as zeroes, and the summary that knew of them is damaged.
    offset = sorted(segment.entries["offset"].tolist())[-3]
    with segment.path.open("r+b") as file:
        file.seek(offset)
        file.write(bytes(segment.end - offset))
    data = bytearray(segment.summary_path.read_bytes())
    data[-20] ^= 255
    segment.summary_path.write_bytes(data)
    for _ in range(10):
        with pytest.raises(tm.Corrupt):
            queue.pop(ROWS)
    assert len(queue) == 30 * ROWS
    queue.close()


def test_a_system_without_a_thread_to_spare_costs_upkeep_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name.startswith("tidemill "):
            raise RuntimeError("can't start new thread")
        start(self)

    queue = _queue(tmp_path, segment_bytes=1024 * 1024, maintain_in_background=True)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        _fill(queue, 40, item_bytes=1_000)
        popped = queue.pop(10 * ROWS).keys.to_pylist()
        assert "can't start new thread" in caplog.text
    while len(batch := queue.pop(ROWS)):
        popped += batch.keys.to_pylist()
    assert popped == list(range(40 * ROWS))
    assert queue._core.maintenance._thread is not None
    queue.close()


@pytest.mark.parametrize("in_background", [True, False])
def test_upkeep_that_fails_takes_nothing_from_whoever_made_it_due(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    in_background: bool,
) -> None:
    rounds = threading.Semaphore(0)
    run = Maintenance.run_round
    failures: list[BaseException] = [MemoryError("no memory"), MemoryError("no memory")]

    def failing(self: Maintenance) -> None:
        rounds.release()
        if failures:
            raise failures.pop()
        run(self)

    monkeypatch.setattr(Maintenance, "run_round", failing)
    with _queue(tmp_path, segment_bytes=256 * 1024, maintain_in_background=in_background) as queue:
        _fill(queue, 5, item_bytes=1_000)
        assert rounds.acquire(timeout=30)
        _fill(queue, 5, item_bytes=1_000)
        assert rounds.acquire(timeout=30)
        popped: list[int] = []
        while len(batch := queue.pop(ROWS)):
            popped += batch.keys.to_pylist()
        # There is another round after those that failed.
        assert rounds.acquire(timeout=30)
        assert popped == sorted([*range(5 * ROWS), *range(5 * ROWS)])
    assert "no memory" in caplog.text
    assert not failures


def test_a_push_that_sealed_a_segment_reads_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The push is written by then, and whoever is told otherwise pushes it again."""

    def unreadable(self: Segment) -> object:
        raise StorageFailed("Input/output error")

    with _queue(tmp_path, segment_bytes=1024 * 1024) as queue:
        _fill(queue, 60, item_bytes=500)
        upkeep = queue._core.maintenance
        upkeep._seen_active = 1
        with monkeypatch.context() as patch:
            patch.setattr(Segment, "entries", property(unreadable))
            patch.setattr(upkeep, "_due", lambda: None)
            queue.push([(1, b"one more")])
        assert len(queue) == 60 * ROWS + 1


def test_a_reader_that_is_interrupted_while_it_sets_a_frame_aside_counts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _queue(tmp_path, sync="full") as owner:
        _fill(owner, 20)
        with tm.PriorityQueue(tmp_path, read_only=True, on_corruption="continue") as reader:
            assert len(reader) == 20 * ROWS
            _damage(tmp_path, 5)
            _Once(monkeypatch, follower, "count_left", KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                reader.peek(20 * ROWS)
            assert len(reader.peek(20 * ROWS)) == len(reader) == 19 * ROWS
