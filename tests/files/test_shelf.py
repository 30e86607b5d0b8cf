"""Bodies on a shelf are the bodies that were put there, in memory or in a file without a name."""

from __future__ import annotations

import errno
import logging
from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tidemill.batch import EncodedBody, encode_body
from tidemill.errors import Bug, Corrupt, DiskFull, StorageFailed
from tidemill.files.filesystem import File, LocalFileSystem
from tidemill.files.shelf import Shelf, ShelvedBody


@pytest.fixture(autouse=True)
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.files.shelf.SHELF_MEMORY_BYTES_MAX", 64 * 1024)


def body(size: int) -> EncodedBody:
    return encode_body(pa.record_batch({"value": pa.array([bytes([size % 251]) * size])}))


def loaded(body: EncodedBody) -> pa.Buffer | bytes:
    return body.buffer.load() if isinstance(body.buffer, ShelvedBody) else body.buffer


def test_bodies_keep_their_bytes_in_memory_and_in_the_file(tmp_path: Path) -> None:
    bodies = [body(size) for size in range(0, 40_000, 611)]
    with Shelf(LocalFileSystem(), tmp_path) as shelf:
        kept = [shelf.keep(one) for one in bodies]
        is_late = [isinstance(one.buffer, ShelvedBody) for one in kept]
        # Those in memory come first, so that the last one says whether there are others.
        assert is_late == sorted(is_late)
        assert sum(one.body_bytes for one in kept[: is_late.index(True)]) <= 64 * 1024
        for before, after in reversed(list(zip(bodies, kept, strict=True))):
            assert loaded(after) == before.buffer
            assert after[1:] == before[1:]
            assert len(after.buffer) == before.body_bytes
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(Bug, match="had been left"):
        loaded(kept[-1])


def test_few_bodies_need_no_file(tmp_path: Path) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    with Shelf(fs, tmp_path) as shelf:
        assert loaded(shelf.keep(body(1_000))) == body(1_000).buffer
    assert fs.calls == 0


def test_what_comes_back_changed_is_not_passed_on(tmp_path: Path) -> None:
    class Remembered(LocalFileSystem):
        def scratch(self, folder: Path) -> File:
            self.file = super().scratch(folder)
            return self.file

    fs = Remembered()
    with Shelf(fs, tmp_path) as shelf:
        kept = shelf.keep(body(70_000))
        fs.file.pwrite([b"?"], 50_000)
        with pytest.raises(Corrupt, match="does not hold what was written"):
            loaded(kept)


@pytest.mark.parametrize("call", ["scratch", "pwrite", "pread"])
def test_what_the_disk_refuses_is_told(tmp_path: Path, call: str) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    with Shelf(fs, tmp_path) as shelf:
        fs.fail_next(call)
        with pytest.raises(StorageFailed, match="a file without a name in"):
            loaded(shelf.keep(body(70_000)))
    assert fs.fired == 1


def test_a_full_disk_is_told_as_one(tmp_path: Path) -> None:
    fs = FailingFileSystem(LocalFileSystem(), error=errno.ENOSPC)
    fs.fail_next("pwrite")
    with Shelf(fs, tmp_path) as shelf, pytest.raises(DiskFull, match="free some space"):
        shelf.keep(body(70_000))


def test_a_file_that_cannot_be_closed_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FailingFileSystem(LocalFileSystem())
    with caplog.at_level(logging.WARNING), Shelf(fs, tmp_path) as shelf:
        shelf.keep(body(70_000))
        fs.fail_next("close")
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
