"""The file of a retired segment is used for the next one; what it held before never shows."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.open_files import OpenFiles
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.files.journal.rest import END_MARK
from tidemill.files.journal.segment import Segment, segment_path
from tidemill.files.journal.spare import Spare, SpareFile
from tidemill.files.readers.listing import list_records

SEGMENT = 32 * 1024
ROWS = 20


def queue_at(path: Path, **options: object) -> tm.PriorityQueue:
    given = {"segment_bytes": SEGMENT, "maintain_in_background": False, **options}
    return tm.PriorityQueue(path, **given)  # type: ignore[arg-type]


def spares(path: Path) -> list[Path]:
    return sorted((path / "journal").glob("*.spare"))


def segments(path: Path) -> list[Path]:
    return sorted((path / "journal").glob("*.segment"))


def fill(queue: tm.PriorityQueue, start: int, rounds: int = 60) -> None:
    """Push and pop until segments have come and gone."""
    for number in range(start, start + rounds):
        queue.push([(number, b"%d" % number * 20) for _ in range(ROWS)])
        assert queue.pop(ROWS).keys.to_pylist() == [number] * ROWS


def until_spare(queue: tm.PriorityQueue, path: Path) -> int:
    """Have a file that waits; returns the first key that was not used yet."""
    for key in range(0, 1_000, 5):
        if spares(path):
            return key
        fill(queue, key, 5)
    raise AssertionError("no segment was kept")


def begin_with_spare(queue: tm.PriorityQueue, path: Path) -> tuple[Path, int]:
    """(the active segment, which has the file of another, the next key)."""
    key = until_spare(queue, path)
    number = os.stat(spares(path)[0]).st_ino
    while spares(path):
        queue.push([(key, b"kept" * 10)] * ROWS)
        key += 1
    active = segments(path)[-1]
    assert os.stat(active).st_ino == number
    return active, key


@pytest.fixture(params=["none", "full"])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tm.PriorityQueue]:
    with queue_at(tmp_path / "queue", sync=request.param) as queue:
        yield queue


def test_the_next_segment_has_the_file_of_a_retired_one(queue: tm.PriorityQueue) -> None:
    active, key = begin_with_spare(queue, queue.path)
    assert len(queue) > 0
    left = queue.pop(-1).rows()
    assert {value for _, value in left} == {b"kept" * 10}
    fill(queue, key)
    assert active.name != segments(queue.path)[-1].name


def test_what_the_file_held_before_does_not_show(queue: tm.PriorityQueue, tmp_path: Path) -> None:
    active, key = begin_with_spare(queue, queue.path)
    queue.push([(key, b"last")])
    expected = queue.peek(-1).rows()
    # As a process that is killed leaves it.
    shutil.copytree(queue.path, tmp_path / "killed")
    copy = tmp_path / "killed" / "journal" / active.name
    assert b"TMRC" in copy.read_bytes()[-SEGMENT // 2 :]
    assert not [one for one in list_records(tmp_path / "killed") if one.kind == "damage"]
    with queue_at(tmp_path / "killed") as again:
        assert again.pop(-1).rows() == expected
        fill(again, key)
    with tm.PriorityQueue(queue.path, read_only=True) as reader:
        assert reader.peek(-1).rows() == expected


def test_nor_does_it_if_a_power_cut_took_the_end_mark(
    queue: tm.PriorityQueue, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    active, key = begin_with_spare(queue, queue.path)
    queue.push([(key, b"last")])
    expected = queue.peek(-1).rows()
    end = queue._core.folder.journal.active.end
    shutil.copytree(queue.path, tmp_path / "cut")
    with (tmp_path / "cut" / "journal" / active.name).open("r+b") as file:
        file.seek(end)
        assert file.read(ENVELOPE_BYTES) == bytes(ENVELOPE_BYTES)
        file.seek(end)
        file.write(b"\x17" * ENVELOPE_BYTES)
    assert tm.doctor.verify(tmp_path / "cut").is_healthy
    with queue_at(tmp_path / "cut") as again:
        assert again.pop(-1).rows() == expected
    assert "unfinished operation" in caplog.text


def test_a_segment_that_was_not_sealed_well_costs_none_that_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without sync, a process may be killed before anybody has looked after a full segment."""
    path = tmp_path / "queue"
    with queue_at(path, sync="none") as queue:
        active, key = begin_with_spare(queue, path)
        monkeypatch.setattr(queue._core.maintenance, "run_round", lambda: None)
        while segments(path)[-1] == active:
            queue.push([(key, b"kept" * 10)] * ROWS)
            key += 1
        end = queue._core.folder.journal.segments[int(active.name[:16])].end
        assert active.stat().st_size > end
        for behind in (b"", b"\x17"):
            copy = tmp_path / f"killed{len(behind)}"
            shutil.copytree(path, copy)
            with (copy / "journal" / active.name).open("r+b") as file:
                file.seek(end)
                file.write(behind)
            with queue_at(copy) as again:
                assert again.peek(-1).rows() == queue.peek(-1).rows()


def test_one_that_comes_while_another_becomes_a_segment_stays_out_of_its_way(
    tmp_path: Path,
) -> None:
    """Upkeep retires segments in a thread of its own, while a push begins one."""
    fs = LocalFileSystem()
    spare = Spare(fs, tmp_path, segment_bytes=SEGMENT)

    def offer(number: int) -> SpareFile:
        path = segment_path(tmp_path, number)
        path.write_bytes(b"%d" % number * (SEGMENT + 100))
        file = OpenFiles(fs).existing(path)
        offered = spare.offer(Segment(fs, tmp_path, number, file, start=0, end=SEGMENT))
        assert offered is not None
        assert not path.exists()
        return offered

    spare.want()
    first = offer(1)
    assert spare.take() is None, "a crash could bring its old name back"
    spare.keep(first)
    taken = spare.take()
    assert taken is first
    spare.keep(offer(2))
    assert taken.path.read_bytes() == b"1" * SEGMENT
    assert taken.file.pread(1, 0) == b"1"
    taken.file.close()
    spare.drop()
    assert [path.name for path in tmp_path.iterdir()] == [taken.path.name]
    spare.sweep()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("sync", ["none", "full"])
def test_threads_that_push_pop_and_scan_while_files_go_round_lose_nothing(
    tmp_path: Path, sync: str
) -> None:
    with queue_at(
        tmp_path, segment_bytes=SEGMENT // 2, sync=sync, maintain_in_background=True
    ) as queue:

        def push(thread: int) -> list[bytes]:
            pushed = []
            for key in range(150):
                values = [b"%d-%d-%d" % (thread, key, row) + b"x" * 60 for row in range(ROWS)]
                queue.push([(key, value) for value in values])
                pushed += values
            return pushed

        def pop() -> list[bytes]:
            popped: list[bytes] = []
            while not are_pushed.is_set():
                popped += queue.pop(3 * ROWS).values.to_pylist()
                if len(queue):
                    queue.scan().close()
            return popped

        are_pushed = threading.Event()
        with ThreadPoolExecutor(3) as pool:
            popping = pool.submit(pop)
            pushing = [pool.submit(push, thread) for thread in range(2)]
            try:
                pushed = [value for future in pushing for value in future.result()]
            finally:
                are_pushed.set()
            popped = popping.result()
        rolled = queue._core.folder.journal.active.number
    assert rolled > 10
    with tm.PriorityQueue(tmp_path) as queue:
        popped += queue.pop(-1).values.to_pylist()
    assert sorted(popped) == sorted(pushed)


@pytest.mark.parametrize("call", ["rename", "open"])
def test_a_scan_that_is_collected_in_the_middle_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Its segments go wherever the interpreter collects it."""
    scans: list[pa.RecordBatchReader] = []
    real = getattr(LocalFileSystem, call)

    def collecting(*arguments: Any, **options: Any) -> Any:
        scans.clear()
        return real(*arguments, **options)

    def work() -> None:
        with queue_at(tmp_path, sync="none") as queue:
            queue.push([(0, b"held")] * ROWS)
            scans.append(queue.scan())
            assert len(queue.pop(ROWS)) == ROWS
            monkeypatch.setattr(LocalFileSystem, call, collecting)
            fill(queue, 1, 200)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert not scans


def test_a_file_that_a_reader_has_is_let_go(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with queue_at(path, sync="none") as queue:
        queue.push([(0, b"first")] * ROWS)
        with tm.PriorityQueue(path, read_only=True) as reader:
            scan = reader.scan()
            linked = {os.stat(file).st_ino for file in (path / "readers").rglob("*.segment")}
            assert linked
            assert len(queue.pop(ROWS)) == ROWS
            fill(queue, 1, 200)
            used = {os.stat(file).st_ino for file in [*segments(path), *spares(path)]}
            assert not linked & used
            assert scan.read_all().column("value").to_pylist() == [b"first"] * ROWS


def test_segments_of_another_queue_are_let_go(tmp_path: Path) -> None:
    with queue_at(tmp_path / "source") as source, queue_at(tmp_path / "queue") as queue:
        for key in range(200):
            source.push([(key, b"moved" * 20)] * ROWS)
        assert source.shovel(queue) == 200 * ROWS
        adopted = queue._core.folder.state.adopted
        assert adopted
        files = {file.name: os.stat(file).st_ino for file in segments(queue.path)}
        theirs = {files[f"{number:016d}.segment"] for number in adopted}
        while len(queue):
            queue.pop(5 * ROWS)
            ours = [*segments(queue.path), *spares(queue.path)]
            kept = {os.stat(file).st_ino for file in ours if file.name not in files}
            assert not kept & theirs


def test_closing_gives_it_back(tmp_path: Path) -> None:
    with queue_at(tmp_path) as queue:
        until_spare(queue, tmp_path)
        assert queue.stats().disk_bytes > SEGMENT + SEGMENT // 2
    assert not spares(tmp_path)


def test_opening_removes_what_a_killed_owner_left(tmp_path: Path) -> None:
    with queue_at(tmp_path / "queue") as queue:
        until_spare(queue, queue.path)
        shutil.copytree(queue.path, tmp_path / "killed")
    report = tm.doctor.verify(tmp_path / "killed")
    assert report.is_healthy
    assert "stranger" not in {finding.code for finding in report.findings}
    with queue_at(tmp_path / "killed") as again:
        assert not spares(again.path)
        assert len(again) == 0


def test_an_end_mark_stands_behind_what_fills_it_up_to_the_reserve(tmp_path: Path) -> None:
    with queue_at(tmp_path, sync="none") as queue:
        folder = queue._core.folder
        journal = folder.journal
        while journal.active.end < SEGMENT - 4_096:
            queue.push([(1, b"old")] * 5)
        while journal.active.number == 1:
            queue.pop()
        queue.pop(-1)
        queue._core.maintenance.run_round()
        (spare,) = spares(tmp_path)
        old_bytes = spare.stat().st_size
        assert old_bytes > SEGMENT - journal.reserve
        with folder.writing_alone():
            journal.roll()
        queue.push([(2, bytes(old_bytes - journal.active.start - 1_024))])
        active = journal.active
        assert SEGMENT - journal.reserve < active.end < old_bytes - ENVELOPE_BYTES
        data = active.path.read_bytes()
        assert any(data[active.end + ENVELOPE_BYTES : old_bytes])
        assert data[active.end : active.end + ENVELOPE_BYTES] == END_MARK


def test_a_queue_that_is_bounded_keeps_none(tmp_path: Path) -> None:
    with queue_at(tmp_path, bytes_max=8 * SEGMENT) as queue:
        for key in range(0, 400, 20):
            fill(queue, key, 20)
            assert not spares(tmp_path)


def test_a_full_disk_has_its_room(tmp_path: Path) -> None:
    disk = FailingFileSystem(LocalFileSystem(), error=errno.ENOSPC)
    with queue_at(tmp_path, file_system=disk, sync="none") as queue:
        key = until_spare(queue, tmp_path)
        # The active segment has to grow for what is too large for it.
        journal = queue._core.folder.journal
        journal._room = journal._rest.allocated = 0
        disk.fail_next("allocate")
        queue.push([(key, b"x")])
        assert not spares(tmp_path)
        assert queue.pop().rows() == [(key, b"x")]


def test_an_error_while_it_becomes_a_segment_leaves_nothing_behind(tmp_path: Path) -> None:
    for kind in ("allocate", "pwrite", "rename", "size"):
        disk = FailingFileSystem(LocalFileSystem())
        path = tmp_path / kind
        with queue_at(path, file_system=disk, sync="none") as queue:
            key = until_spare(queue, path)
            active = queue._core.folder.journal.active.number
            pushed = []
            while True:
                queue._core.folder.journal.seal_soon()
                disk.fail_next(kind)
                try:
                    queue.push([(key, b"kept")])
                except tm.TidemillError:
                    break
                pushed.append((key, b"kept"))
                key += 1
            assert not spares(path)
            assert queue._core.folder.journal.active.number == active + len(pushed)
        disk.heal()
        with queue_at(path) as again:
            assert again.pop(-1).rows() == pushed
