"""Memory and open files do not grow with the queue."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.files.open_files import open_below
from tidemill.files.disk.filesystem import File, LocalFileSystem
from tidemill.files.merge.cursor import Cursor
from tidemill.limits import FILES_OPEN_MAX

KEPT_OPEN = 5  # lock, head, active segment, spine, and a file to be used again


def merges_of(queue: tm.PriorityQueue) -> int:
    cursor: Cursor = queue._cursor
    return len(cursor._merges)


def filled(path: Path, items: int, **options: object) -> tm.PriorityQueue:
    """A queue of many small segments."""
    given = {"segment_bytes": 16 * 1024, "sync": "none", **options}
    queue = tm.PriorityQueue(path, **given)  # type: ignore[arg-type]
    for start in range(0, items, 20):
        queue.push([(key, bytes(100)) for key in range(start, start + 20)])
    return queue


def test_open_files_do_not_grow_with_the_number_of_segments(tmp_path: Path) -> None:
    with filled(tmp_path, 12_000, maintain_in_background=False) as queue:
        assert queue.stats().segments > 5 * FILES_OPEN_MAX
        assert open_below(tmp_path) <= FILES_OPEN_MAX + KEPT_OPEN
    assert open_below(tmp_path) == 0
    with tm.PriorityQueue(tmp_path, maintain_in_background=False) as queue:
        assert open_below(tmp_path) <= FILES_OPEN_MAX + KEPT_OPEN
        for _ in range(10):
            assert len(queue.pop(1_000)) == 1_000
            assert open_below(tmp_path) <= FILES_OPEN_MAX + KEPT_OPEN
        assert len(queue.pop(-1)) == 2_000
    assert open_below(tmp_path) == 0


def test_a_queue_works_where_the_system_allows_fewer_files_than_it_has_segments(
    tmp_path: Path,
) -> None:
    with filled(tmp_path, 12_000):
        pass
    code = (
        "import resource, sys, tidemill as tm\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "with tm.PriorityQueue(sys.argv[1]) as queue:\n"
        "    print(queue.stats().segments > 64, len(queue.pop(-1)))\n"
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 64
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("True 12000\n", "")


@pytest.mark.parametrize("open_max", [0, 1, 4])
def test_no_more_merges_stay_in_memory_than_allowed(tmp_path: Path, open_max: int) -> None:
    with tm.PriorityQueue(
        tmp_path, bucket=tm.Width(10), buckets_open_max=open_max, sync="none"
    ) as queue:
        queue.push([(key, b"") for key in range(1_000)])
        for count in (5, 10, 100, 7):
            queue.peek(count)
            assert merges_of(queue) <= open_max
            queue.pop(count)
            assert merges_of(queue) <= open_max
        assert queue.pop(-1).keys.to_pylist() == list(range(122, 1_000))


def test_zero_open_buckets_work_like_any_other_number(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(3), buckets_open_max=0) as queue:
        queue.push([(key, b"1") for key in range(10)])
        assert queue.pop(2).keys.to_pylist() == [0, 1]
        with queue.read(4) as read:
            queue.push([(0, b"2")])
            assert read.batch.keys.to_pylist() == [2, 3, 4, 5]
        assert queue.pop(3).rows() == [(0, b"2"), (6, b"1"), (7, b"1")]
        assert len(queue) == 2


class NotedReads(LocalFileSystem):
    """Notes from which segments something was read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> File:
        file = super().open(path, write=write, create=create)
        return _Noted(file, path.name, self.read) if path.suffix == ".segment" else file  # type: ignore[return-value]


class _Noted:
    def __init__(self, file: File, name: str, read: list[str]) -> None:
        self._file, self._name, self._read = file, name, read

    def __getattr__(self, method: str) -> object:
        if method in ("pread", "pread_buffers"):
            self._read.append(self._name)
        return getattr(self._file, method)


def test_the_length_is_known_without_reading_a_frame(tmp_path: Path) -> None:
    with filled(tmp_path, 2_000, maintain_in_background=False) as queue:
        queue.fork("f").pop(500)
        queue.delete(100, 199)
        queue._core.folder.journal.finish_seals()  # Else opening does so.
    fs = NotedReads()
    with tm.PriorityQueue(tmp_path, file_system=fs, maintain_in_background=False) as queue:
        fork = queue.fork("f")
        assert (len(queue), len(fork)) == (1_900, 1_500)
        assert queue.stats().items == 1_900
        assert merges_of(queue) == 0
        # The last one is read by opening, for what a crash may have left at its end.
        last = queue._core.folder.journal.active.path.name
        assert set(fs.read) == {last}
        queue.peek(-1)
        assert len(set(fs.read)) > 5


@pytest.mark.slow
def test_memory_stays_small_while_a_queue_many_times_its_size_goes_through(tmp_path: Path) -> None:
    code = """
import resource, sys, tidemill as tm
from tidemill.files.merge.merge import Merge
def used_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
Merge.__init__.__kwdefaults__["bytes_max"] = 16 * 1024 * 1024
with tm.PriorityQueue(sys.argv[1], sync="none") as queue:
    queue.push([(0, bytes(10_000))] * 10)
    queue.pop(10)
    before = used_mib()
    for start in range(150):
        # Every push spans the whole key space, so that every pop meets all of them.
        queue.push([(key * 150 + start, bytes(10_000)) for key in range(100)])
    for _ in range(10):
        assert len(queue.pop(100)) == 100
    print(used_mib() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    # The queue is 150 MB; a merge may hold its 16 MiB, a window of it, and what it is reading.
    assert int(done.stdout) < 80
