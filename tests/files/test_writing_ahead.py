"""What the journal does before it has to: zeroes behind small synced operations, and a sync before
the one that everybody waits for.
"""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Write
from tests.files.counting_fs import CountingFileSystem
from tidemill.limits import ZEROES_BYTES_MAX

WITHIN_S = 30
PAGE = 4096


def _writes(fs: MemoryFileSystem) -> list[Write]:
    """What was written to segments behind the state that each begins with."""
    return [
        operation
        for operation in fs.trace.operations
        if isinstance(operation, Write)
        and str(operation.path).endswith(".segment")
        and operation.offset
    ]


def _zeroes(write: Write) -> int:
    return len(write.data) - len(write.data.rstrip(b"\0"))


def _pushed(sync: str, pushes: int, item_bytes: int) -> list[Write]:
    fs = MemoryFileSystem()
    path = Path("/queue")
    queue = tm.PriorityQueue(path, sync=sync, file_system=fs, maintain_in_background=False)  # type: ignore[arg-type]
    for number in range(pushes):
        queue.push([(number, b"x" * item_bytes)])
    writes = _writes(fs)
    fs.die()
    # Zeroes are the end of data, so that whoever opens it finds what was pushed and no more.
    with tm.PriorityQueue(path, file_system=fs, maintain_in_background=False) as again:
        assert again.pop(-1).keys.to_pylist() == list(range(pushes))
    return writes


def test_small_synced_pushes_mostly_fall_on_bytes_that_were_written_before() -> None:
    writes = _pushed("full", 3_000, 1_000)
    extended = [write for write in writes if _zeroes(write) > PAGE]
    written = sum(len(write.data) - _zeroes(write) for write in writes)
    zeroes = sum(_zeroes(write) for write in extended)
    assert 3 < len(extended) < 20
    # Each byte is written at most twice, and little is behind the last of them.
    assert written // 2 < zeroes < written + ZEROES_BYTES_MAX
    assert max(_zeroes(write) for write in extended) <= ZEROES_BYTES_MAX + PAGE


def test_the_first_pushes_of_a_queue_are_not_written_twice() -> None:
    writes = _pushed("full", 3, 100)
    assert len(writes) == 3
    assert sum(len(write.data) for write in writes) < 2 * PAGE


@pytest.mark.parametrize(
    ("sync", "pushes", "item_bytes"), [("none", 500, 1_000), ("full", 6, 1024 * 1024)]
)
def test_no_zeroes_where_they_save_nothing(sync: str, pushes: int, item_bytes: int) -> None:
    assert max(_zeroes(write) for write in _pushed(sync, pushes, item_bytes)) <= PAGE


def test_a_sync_alone_writes_nothing() -> None:
    fs = MemoryFileSystem()
    queue = tm.PriorityQueue(
        Path("/queue"), sync="none", file_system=fs, maintain_in_background=False
    )
    for number in range(500):
        queue.push([(number, bytes(1_000))])
    before = len(_writes(fs))
    queue.sync()
    assert len(_writes(fs)) == before


def _filled(path: Path, fs: object, *, in_background: bool) -> tm.PriorityQueue:
    """A queue of several segments that syncs nothing by itself, and whose upkeep is done."""
    queue = tm.PriorityQueue(
        path,
        sync="none",
        segment_bytes=16 * 1024,
        file_system=fs,  # type: ignore[arg-type]
        maintain_in_background=in_background,
    )
    for number in range(12):
        queue.push([(number, bytes(4_000))])
    queue._core.maintenance.run_round()
    return queue


def test_pops_go_on_while_upkeep_syncs_what_was_not(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    queue = _filled(tmp_path, fs, in_background=True)
    fs.sync_began.clear()
    fs.may_sync.clear()
    queue.pop(8)  # Nobody needs the first segments any more.
    assert fs.sync_began.wait(WITHIN_S)
    popped: list[int] = []
    beside = threading.Thread(target=lambda: popped.extend(queue.pop(2).keys.to_pylist()))
    beside.start()
    beside.join(WITHIN_S)
    segments = queue._core.folder.journal.segments
    assert (popped, min(segments)) == ([8, 9], 1)
    fs.may_sync.set()
    queue._core.maintenance.run_round()
    assert min(segments) > 1
    queue.close()
    with tm.PriorityQueue(tmp_path) as again:
        assert again.pop(-1).keys.to_pylist() == [10, 11]


def test_a_sync_ahead_that_fails_poisons_the_handle() -> None:
    fs = FailingFileSystem(MemoryFileSystem(), error=errno.EIO)
    queue = _filled(Path("/queue"), fs, in_background=False)
    fs.fail_next("sync")
    # What was popped reaches its caller; it is upkeep that failed.
    assert len(queue.pop(8)) == 8
    assert fs.fired == 1
    with pytest.raises(tm.StorageFailed, match="close the queue and open it again"):
        queue.push([(1, b"refused")])
