"""Bodies on a shelf are the bodies that were put there, in memory or in a file without a name."""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tests.files.open_files import open_below
from tidemill.batch import EncodedBody, encode_body
from tidemill.errors import StorageFailed
from tidemill.files.commit.combining import Combining
from tidemill.files.commit.operation import Operation, Retire
from tidemill.files.disk.filesystem import File, FileSystem, LocalFile, LocalFileSystem
from tidemill.files.upkeep.carry import carry
from tidemill.files.upkeep.shelf import Shelf, ShelvedBody


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.files.upkeep.shelf.SHELF_MEMORY_BYTES_MAX", 64 * 1024)


def body(size: int) -> EncodedBody:
    return encode_body(pa.record_batch({"value": pa.array([bytes([size % 251]) * size])}))


def loaded(body: EncodedBody) -> pa.Buffer | bytes:
    return body.buffer.load() if isinstance(body.buffer, ShelvedBody) else body.buffer


def test_bodies_keep_their_bytes_in_memory_and_in_the_file(tmp_path: Path) -> None:
    bodies = [body(size) for size in range(0, 40_000, 611)]
    shelf = Shelf(LocalFileSystem(), tmp_path)
    kept = [shelf.keep(one) for one in bodies]
    in_memory = [one.body_bytes for one in kept if not isinstance(one.buffer, ShelvedBody)]
    assert 0 < sum(in_memory) <= 64 * 1024
    assert len(in_memory) < len(kept)
    del shelf
    for before, after in reversed(list(zip(bodies, kept, strict=True))):
        assert loaded(after) == before.buffer
        assert after[1:] == before[1:]
        assert len(after.buffer) == before.body_bytes
    assert list(tmp_path.iterdir()) == []
    assert open_below(tmp_path) == 1
    del after, kept
    assert open_below(tmp_path) == 0


def test_few_bodies_need_no_file(tmp_path: Path) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    assert loaded(Shelf(fs, tmp_path).keep(body(1_000))) == body(1_000).buffer
    assert fs.calls == 0


def test_what_comes_back_changed_is_not_passed_on(tmp_path: Path) -> None:
    class Remembered(LocalFileSystem):
        def scratch(self, folder: Path) -> File:
            self.file = super().scratch(folder)
            return self.file

    fs = Remembered()
    kept = Shelf(fs, tmp_path).keep(body(70_000))
    fs.file.pwrite([b"?"], 50_000)
    with pytest.raises(StorageFailed, match="does not hold what was written"):
        loaded(kept)


@pytest.mark.parametrize("call", ["scratch", "pwrite", "pread"])
def test_what_the_disk_refuses_is_told(tmp_path: Path, call: str) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    fs.fail_next(call)
    with pytest.raises(StorageFailed, match="a file without a name in"):
        loaded(Shelf(fs, tmp_path).keep(body(70_000)))
    assert fs.fired == 1


@pytest.mark.parametrize("call", ["scratch", "pwrite"])
@pytest.mark.parametrize("written", [0, 3])
def test_on_a_full_disk_memory_has_to_do(tmp_path: Path, call: str, written: int) -> None:
    """To rewrite segments is how room is made."""
    fs = FailingFileSystem(LocalFileSystem(), error=errno.ENOSPC, partial_bytes=100)
    shelf = Shelf(fs, tmp_path)
    bodies = [body(70_000 + number) for number in range(6)]
    kept = [shelf.keep(one) for one in bodies[: 0 if call == "scratch" else written]]
    fs.fail_next(call)
    kept += [shelf.keep(one) for one in bodies[len(kept) :]]
    assert fs.fired == 1
    assert [loaded(one) for one in kept] == [one.buffer for one in bodies]


def test_a_file_that_cannot_be_closed_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    kept = Shelf(fs, tmp_path).keep(body(70_000))
    fs.fail_next("close")
    with caplog.at_level(logging.WARNING):
        del kept
    assert "a file without a name in" in caplog.text


def test_segments_are_rewritten_by_way_of_the_file(tmp_path: Path) -> None:
    fs = FailingFileSystem(LocalFileSystem())

    def opened() -> tm.PriorityQueue:
        return tm.PriorityQueue(
            tmp_path, sync="none", segment_bytes=256 * 1024, maintain_in_background=False,
            file_system=fs,
        )  # fmt: skip

    with opened() as queue:
        for number in range(3_000):
            queue.push([(number % 7, bytes([number % 251]) * 50)])
        assert fs.log.count(f"scratch {tmp_path / 'journal'}") > 0
        expected = queue.peek(-1).to_arrow()
        assert expected.column("seq").to_pylist() == [
            number + 1 for key in range(7) for number in range(key, 3_000, 7)
        ]
    with opened() as queue:
        assert queue.pop(-1).to_arrow().equals(expected)
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith("tmp")]


def tiny_frames(path: Path, fs: FileSystem) -> tm.PriorityQueue:
    """A queue whose first segment is worth rewriting, by way of the file."""
    queue = tm.PriorityQueue(
        path, sync="none", segment_bytes=256 * 1024, maintain_in_background=False, file_system=fs
    )
    queue._core.maintenance.stop()
    while len(queue._core.folder.journal.segments) < 2:
        queue.push([(len(queue), bytes(200))])
    return queue


class _Unreadable(LocalFile):
    def pread_buffers(self, lengths: Sequence[int], offset: int) -> list[pa.Buffer]:
        raise OSError(errno.EIO, f"nothing of {sum(lengths)} bytes at {offset}")


def test_a_file_that_cannot_be_read_leaves_the_queue_as_it_was(tmp_path: Path) -> None:
    class Disk(LocalFileSystem):
        is_readable = False

        def scratch(self, folder: Path) -> File:
            file = super().scratch(folder)
            assert isinstance(file, LocalFile)
            return file if self.is_readable else _Unreadable(os.dup(file._fd))

    disk = Disk()
    with tiny_frames(tmp_path, disk) as queue:
        items = len(queue)
        with pytest.raises(StorageFailed, match="reading from a file without a name"):
            carry(queue._core.folder, 1)
        queue.push([(items, b"one more")])
        assert 1 in queue._core.folder.journal.segments
        disk.is_readable = True
        carry(queue._core.folder, 1)
        assert 1 not in queue._core.folder.journal.segments
        assert queue.pop(-1).keys.to_pylist() == list(range(items + 1))


def test_who_is_interrupted_takes_nothing_away_from_the_thread_that_writes(tmp_path: Path) -> None:
    """The carry waits for a push of another thread, which then writes both, when it is interrupted
    and leaves: the frames it had prepared stay where they are.
    """
    with tiny_frames(tmp_path, LocalFileSystem()) as queue:
        folder = queue._core.folder
        items = len(queue)
        leads, may_write, write = threading.Event(), threading.Event(), folder._write_and_apply
        groups: list[int] = []

        def slow(operations: Sequence[Operation]) -> None:
            groups.append(len(operations))
            if len(groups) == 1:
                leads.set()
                assert may_write.wait(30)
            write(operations)

        folder._write_and_apply = slow  # type: ignore[method-assign]
        # The first push leads alone; the second and the carry wait, and become one group.
        first = threading.Thread(target=queue.push, args=([(items, b"first")],))
        first.start()
        assert leads.wait(30)
        second = threading.Thread(target=queue.push, args=([(items + 1, b"second")],))
        second.start()
        waiting = folder.committer
        acquire = Combining._wait

        def interrupted(self: Combining[Operation], mine: list[Operation], wakeup: object) -> None:
            if type(mine[0]) is not Retire:
                acquire(self, mine, wakeup)  # type: ignore[arg-type]
                return
            may_write.set()
            while not groups[1:]:
                time.sleep(0)
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Combining, "_wait", interrupted)
            while not waiting._waiting:
                time.sleep(0)
            with pytest.raises(KeyboardInterrupt):
                carry(folder, 1)
        first.join(30)
        second.join(30)
        assert not first.is_alive()
        assert not second.is_alive()
        assert folder.journal.failure is None
        queue.push([(items + 2, b"third")])
        assert queue.pop(-1).keys.to_pylist() == list(range(items + 3))
