"""The faults found in the original of this queue; each test fails on its way of doing it."""

from __future__ import annotations

import copy
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.crash_states import enumerate_states
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.files.counting_fs import CountingFileSystem
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.state.bucket import BucketFunction
from tidemill.limits import INT64_MAX, INT64_MIN, ITEM_BYTES_MAX


def keys(end: tm.PriorityQueue | tm.Fork) -> list[int]:
    return list(end.peek(-1).keys.to_pylist())


def active_segment(path: Path) -> Path:
    return max((path / "journal").glob("*.segment"))


def test_forks_do_not_vanish_on_reopening_and_keep_their_data(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024) as queue:
        queue.fork("audit")
        for key in range(100):
            queue.push([(key, bytes(500))])
    with tm.PriorityQueue(tmp_path) as queue:
        # The main queue passes everything; were the fork unknown, its data would be deleted.
        queue.pop(-1)
        queue._core.maintenance.run_round()
        assert keys(queue.fork("audit")) == list(range(100))
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue.fork("audit")) == list(range(100))


def test_peek_returns_n_items_and_not_n_for_each_bucket(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(10)) as queue:
        queue.push([(key, b"") for key in range(100)])
        assert queue.peek(15).keys.to_pylist() == list(range(15))


def test_a_push_in_full_mode_syncs_all_that_finding_it_again_needs(tmp_path: Path) -> None:
    """Power may fail right after any push: what it acknowledged is there, index or no index."""
    fs = MemoryFileSystem()
    folder = Path("/queue")
    queue = tm.PriorityQueue(folder, bucket=tm.Width(10), file_system=fs)
    for number in range(3):
        queue.push([(key * 10 + number, b"x") for key in range(4)])
        fs.mark("acknowledged", number + 1)
    seen = 0
    for state in enumerate_states(fs.trace, budget=300):
        acknowledged = len(state.marks)
        if acknowledged:
            seen += 1
            with tm.PriorityQueue(folder, file_system=state.file_system()) as again:
                assert len(again) >= 4 * acknowledged
    assert seen


def test_a_torn_tail_is_cut_off_and_later_pushes_do_not_land_behind_it(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"whole")])
        end = queue._core.folder.journal.active.end
        queue.push([(2, b"torn" * 100)])
    # The second push was never promised: only a part of it reached the disk, and no spine vouches.
    segment = active_segment(tmp_path)
    segment.write_bytes(segment.read_bytes()[: end + 100])
    for spine in (tmp_path / "journal").glob("*.spine"):
        spine.unlink()
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue) == [1]
        queue.push([(3, b"after")])
    assert b"torn" not in active_segment(tmp_path).read_bytes()
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(-1).rows() == [(1, b"whole"), (3, b"after")]


def test_one_good_byte_does_not_make_a_record_whole(tmp_path: Path) -> None:
    """The last byte of a record survives and the middle does not: it is noticed."""
    with tm.PriorityQueue(tmp_path) as queue:
        start = queue._core.folder.journal.active.end
        queue.push([(1, b"payload" * 50)])
        end = queue._core.folder.journal.active.end
    segment = active_segment(tmp_path)
    data = bytearray(segment.read_bytes())
    middle = slice(start + (end - start) // 2, end - 64)
    data[middle] = bytes(len(data[middle]))
    segment.write_bytes(data)
    with pytest.raises(tm.Corrupt) as found:
        tm.PriorityQueue(tmp_path)
    assert (found.value.path, found.value.offset) == (segment, start)


def test_a_flipped_bit_in_a_payload_is_never_handed_out(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"precious" * 10)])
    segment = active_segment(tmp_path)
    data = bytearray(segment.read_bytes())
    data[data.index(b"precious") + 3] ^= 1
    segment.write_bytes(data)
    with pytest.raises(tm.Corrupt, match="checksum"):
        tm.PriorityQueue(tmp_path)


def test_delete_takes_the_right_batch_among_those_with_equal_first_keys(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"first"), (5, b"first")])
        queue.push([(1, b"second"), (9, b"second")])
        queue.push([(1, b"third"), (3, b"third")])
        assert queue.delete(4, 9) == 2
        assert queue.pop(-1).rows() == [
            (1, b"first"),
            (1, b"second"),
            (1, b"third"),
            (3, b"third"),
        ]


def test_the_length_of_a_fork_that_is_not_loaded_counts_items_and_not_batches(
    tmp_path: Path,
) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.fork("f")
        queue.push([(key, b"") for key in range(1_000)])
        queue.push([(key, b"") for key in range(500)])
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue.fork("f")) == 1_500
        queue.fork("f").pop(250)
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue.fork("f")) == 1_250


def test_emptying_one_fork_leaves_the_others_alone(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        one, two = queue.fork("one"), queue.fork("two")
        queue.push([(1, b"a"), (2, b"b")])
        assert one.clear() == 2
        assert (len(queue), len(one), len(two)) == (2, 0, 2)


def test_equal_keys_are_first_in_first_out(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        pushed = []
        for number in range(200):
            # Around them lie others, so that every push overlaps with every other.
            rows = [(key, f"{number}.{at}".encode()) for at, key in enumerate([7, 5, 7, 9, 7])]
            queue.push(rows)
            pushed += rows
        popped = []
        while len(queue):
            popped += queue.pop(17).rows()
        assert popped == sorted(pushed, key=lambda row: row[0])


def test_keys_near_the_limits_of_integers_are_compared_and_not_subtracted(tmp_path: Path) -> None:
    edges = [INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX]
    buckets: list[BucketFunction] = [tm.Shift(62), tm.Custom("one", np.zeros_like)]
    for number, bucket in enumerate(buckets):
        with tm.PriorityQueue(tmp_path / str(number), bucket=bucket) as queue:
            for key in reversed(edges):
                queue.push([(key, b""), (-(key + 1), b"")])
            expected = sorted([*edges, *(-(key + 1) for key in edges)])
            assert keys(queue) == expected
            assert [queue.pop().keys[0].as_py() for _ in expected] == expected


def test_push_leaves_the_callers_data_as_it_was(tmp_path: Path) -> None:
    rows = [(3, b"c"), (1, b"a"), (2, b"b")]
    given = copy.deepcopy(rows)
    numbers = np.array([3, 1, 2])
    table = pa.table({"key": pa.array(numbers), "value": [b"c", b"a", b"b"]})
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push(rows)
        queue.push(table)
        queue.pop(-1)
    assert rows == given
    assert numbers.tolist() == [3, 1, 2]
    assert table.column("key").to_pylist() == [3, 1, 2]


def test_the_limit_of_64_mib_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    fs = CountingFileSystem()
    with tm.PriorityQueue(tmp_path, file_system=fs) as queue:
        writes = fs.calls["write.segment"]
        with pytest.raises(tm.TooLarge):
            queue.push([(1, b"fine"), (2, bytes(ITEM_BYTES_MAX + 1))])
        assert fs.calls["write.segment"] == writes
        assert len(queue) == 0


def test_a_push_that_fails_is_reported_also_when_told_to_continue(tmp_path: Path) -> None:
    """ "continue" is about damage that is there, never about writing."""
    fs = FailingFileSystem(LocalFileSystem())
    queue = tm.PriorityQueue(tmp_path, on_corruption="continue", file_system=fs)
    queue.push([(1, b"a")])
    failing = FailingFileSystem(
        LocalFileSystem(), fail_at=1, error=errno.EIO, sticky="changes", kinds=frozenset({"sync"})
    )
    fs.__dict__.update(failing.__dict__)
    for _ in range(2):
        with pytest.raises(tm.StorageFailed):
            queue.push([(2, b"b")])
    assert fs.fired
    fs.heal()
    queue.close()
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue)[0] == 1


def test_no_open_buckets_at_all_can_be_asked_for(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(1), buckets_open_max=0) as queue:
        queue.push([(key, b"") for key in range(20)])
        for key in range(20):
            assert queue.pop().keys.to_pylist() == [key]
            assert len(queue._cursor._merges) == 0


KILLED = """
import sys, tidemill as tm
queue = tm.PriorityQueue(sys.argv[1])
fork = queue.fork("f")
for number in range(1_000_000):
    receipt = queue.push([(number, b"x")])
    print(receipt.last, receipt.durability, flush=True)
"""


def test_what_was_reported_synced_survives_a_kill(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(50):
        line = process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    rest = process.stdout.read().splitlines()
    process.wait()
    process.stdout.close()
    last, durability = (rest[-1] if rest and rest[-1].endswith("synced") else line).split()
    assert durability == "synced"
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue)[: int(last)] == list(range(int(last)))
        assert keys(queue.fork("f"))[: int(last)] == list(range(int(last)))
