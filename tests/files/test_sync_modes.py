"""Which calls wait for the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.folder.folder_options import SyncMode

MODES: list[SyncMode] = ["none", "data", "index", "full"]
SYNCS = "sync.segment"


def syncs_of(fs: CountingFileSystem, use: Callable[[], object]) -> int:
    before = fs.calls[SYNCS]
    use()
    return fs.calls[SYNCS] - before


def read_and_push_back(queue: tm.PriorityQueue) -> None:
    with queue.read(1) as read:
        read.push([(9, b"again")])


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_syncs_what_it_says_and_no_more(tmp_path: Path, mode: SyncMode) -> None:
    fs = CountingFileSystem()
    pushes, takes = int(mode in ("data", "full")), int(mode in ("index", "full"))
    with tm.PriorityQueue(tmp_path, sync=mode, file_system=fs) as queue:
        assert syncs_of(fs, lambda: queue.push([(1, b"a"), (2, b"b")])) == pushes
        assert syncs_of(fs, lambda: queue.push([(3, b"c")])) == pushes
        assert syncs_of(fs, lambda: queue.push([(key, b"") for key in range(4, 9)])) == pushes
        assert syncs_of(fs, lambda: queue.pop(1)) == takes
        assert syncs_of(fs, lambda: queue.delete(4, 5)) == takes
        assert syncs_of(fs, lambda: read_and_push_back(queue)) == (pushes or takes)
        assert syncs_of(fs, lambda: queue.peek(1)) == 0
        # What forks stand on must last in any mode.
        assert syncs_of(fs, lambda: queue.fork("f")) == 1
        assert syncs_of(fs, lambda: queue.fork("f").remove()) == 1
        assert syncs_of(fs, queue.clear) == takes
        assert syncs_of(fs, queue.sync) == 1


def test_the_default_is_to_sync_everything(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue:
        assert syncs_of(fs, lambda: queue.push([b"a"])) == 1
        assert syncs_of(fs, queue.pop) == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_receipt_says_whether_the_items_are_on_disk(tmp_path: Path, mode: SyncMode) -> None:
    with tm.PriorityQueue(tmp_path, sync=mode) as queue:
        expected = "synced" if mode in ("data", "full") else "buffered"
        assert queue.push([b"a"]).durability == expected
        assert queue.push([b"a", b"b"]).durability == expected


@pytest.mark.parametrize("mode", MODES)
def test_closing_syncs_in_every_mode(tmp_path: Path, mode: SyncMode) -> None:
    fs = CountingFileSystem()
    queue = tm.PriorityQueue(tmp_path, sync=mode, file_system=fs)
    queue.push([b"a"])
    assert syncs_of(fs, queue.close) >= 1


def test_an_operation_is_one_write_and_one_sync_however_many_buckets_it_touches(
    tmp_path: Path,
) -> None:
    fs = CountingFileSystem()
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(1), file_system=fs) as queue:
        before = fs.calls["write.segment"]
        assert syncs_of(fs, lambda: queue.push([(key, b"") for key in range(100)])) == 1
        assert syncs_of(fs, lambda: queue.pop(60)) == 1
        assert fs.calls["write.segment"] - before == 2


@pytest.mark.parametrize("mode", MODES)
def test_everything_survives_closing_in_every_mode(tmp_path: Path, mode: SyncMode) -> None:
    with tm.PriorityQueue(tmp_path, sync=mode, segment_bytes=16 * 1024) as queue:
        for key in range(100):
            queue.push([(key, bytes(500))])
        queue.pop(30)
    with tm.PriorityQueue(tmp_path, sync=mode) as queue:
        assert queue.pop(-1).keys.to_pylist() == list(range(30, 100))
