"""What is pushed while a bucket is open: some of it is kept in memory, the rest is read back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.folder import folder
from tidemill.limits import KEPT_BYTES_MAX

UNSORTED = [40, 10, 30, 20]


@pytest.fixture
def disk() -> FailingFileSystem:
    """It fails at nothing, but logs its calls."""
    return FailingFileSystem(LocalFileSystem())


@pytest.fixture
def queue(tmp_path: Path, disk: FailingFileSystem) -> Iterator[tm.PriorityQueue]:
    with tm.PriorityQueue(tmp_path, sync="none", file_system=disk) as queue:
        queue.push([(key, b"before") for key in range(0, 100, 3)])
        assert queue.pop(2).keys.to_pylist() == [0, 3]
        yield queue


def preads(disk: FailingFileSystem) -> int:
    return sum(call.startswith("pread ") for call in disk.log)


def rows(keys: list[int], *, nullable: bool = True) -> pa.RecordBatch:
    schema = pa.schema(
        [pa.field("key", pa.int64(), nullable=nullable), pa.field("value", pa.binary(), nullable)]
    )
    values = [b"%d" % key for key in keys]
    return pa.RecordBatch.from_arrays([pa.array(keys), pa.array(values)], schema=schema)


@pytest.mark.parametrize("nullable", [True, False])
@pytest.mark.parametrize("keys", [UNSORTED, sorted(UNSORTED)])
def test_rows_are_not_read_back(
    tmp_path: Path,
    queue: tm.PriorityQueue,
    disk: FailingFileSystem,
    keys: list[int],
    nullable: bool,
) -> None:
    before = preads(disk)
    receipt = queue.push(rows(keys, nullable=nullable))
    found = queue.peek(100).to_arrow()
    assert preads(disk) == before
    assert found.column("key").to_pylist() == sorted([*range(6, 100, 3), *UNSORTED])
    [first] = [row for row in found.to_pylist() if row["key"] == 10]
    assert (first["seq"], first["value"]) == (receipt.first, b"10")
    queue.close()
    with tm.PriorityQueue(tmp_path) as again:
        assert again.peek(100).to_arrow().equals(found)


def test_an_item_that_is_popped_right_away_is_not_read_back(
    queue: tm.PriorityQueue, disk: FailingFileSystem
) -> None:
    queue.pop(-1)
    before = preads(disk)
    for key in (7, 5, 9):
        queue.push([(key, b"one")])
        assert queue.pop().rows() == [(key, b"one")]
    assert preads(disk) == before


def test_many_single_items_are_read_back_together(
    queue: tm.PriorityQueue, disk: FailingFileSystem
) -> None:
    queue.pop(-1)
    for key in range(40):
        queue.push([(key, b"one")])
    before = preads(disk)
    assert queue.pop(40).keys.to_pylist() == list(range(40))
    assert 0 < preads(disk) - before < 10


def test_nor_do_they_pile_up_behind_all_that_is_popped(
    queue: tm.PriorityQueue, disk: FailingFileSystem
) -> None:
    """As in a delay queue, where each item is due later than those that are popped."""
    late = next(iter(queue._cursor._merges.values()))._late
    for number in range(30):
        queue.push([(10**6 + number, b"one")])
        assert queue.pop(1).keys.to_pylist() == [6 + 3 * number]
    assert len([source for source in late.far if source.held is not None]) <= 8
    assert len(late.far) == 30
    before = preads(disk)
    assert queue.pop(-1).keys.to_pylist()[-30:] == list(range(10**6, 10**6 + 30))
    assert 0 < preads(disk) - before < 10


def test_what_upkeep_rewrites_is_read_back(tmp_path: Path, disk: FailingFileSystem) -> None:
    with tm.PriorityQueue(
        tmp_path, segment_bytes=64 * 1024, file_system=disk, maintain_in_background=False
    ) as queue:
        for key in range(1_200):
            queue.push([(key, b"x" * 40)])
        assert queue.pop(2).keys.to_pylist() == [0, 1]
        queue._core.maintenance.run_round()
        kept = [source for source in queue._cursor._inbox if source.held is not None]
        assert not kept
        assert queue.pop(-1).keys.to_pylist() == list(range(2, 1_200))


def test_forks_share_what_may_be_kept(
    queue: tm.PriorityQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "KEPT_BYTES_MAX", 4_096)
    ends = [queue, *(queue.fork(f"fork-{number}") for number in range(3))]
    for end in ends:
        assert len(end.pop(1)) == 1
    for _ in range(8):
        queue.push(rows(UNSORTED))
    for end in ends:
        assert 0 < end._cursor._inbox_bytes <= 1_024
    found = [end.pop(-1).keys.to_pylist() for end in ends]
    assert found[1:] == [found[1]] * 3
    assert found[0] == found[1] == sorted([*range(9, 100, 3), *UNSORTED * 8])


@pytest.mark.parametrize("keys", [UNSORTED, sorted(UNSORTED)])
def test_what_callers_do_to_their_memory_later_is_their_own_business(
    queue: tm.PriorityQueue, keys: list[int]
) -> None:
    memory = np.array(keys, np.int64)
    values = np.frombuffer(bytearray(b"abcd"), np.uint8)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.Array.from_buffers(pa.int64(), 4, [None, pa.py_buffer(memory)]),
            pa.BinaryArray.from_buffers(
                pa.binary(),
                4,
                [None, pa.py_buffer(np.arange(5, dtype=np.int32)), pa.py_buffer(values)],
            ),
        ],
        names=["key", "value"],
    )
    pushed = sorted(zip(keys, batch.column(1).to_pylist(), strict=True))
    queue.push(batch)
    memory[:] = 7
    values[:] = ord("?")
    assert [row for row in queue.pop(100).rows() if row[1] != b"before"] == pushed


def test_what_callers_call_the_parts_of_a_type_is_their_own_business(tmp_path: Path) -> None:
    """To Arrow such types are the same; whoever pops gets those of the queue all the same."""
    schema = pa.schema([("tags", pa.list_(pa.int32())), ("at", pa.struct([("x", pa.int32())]))])
    tags = pa.array([[1], [2]], pa.list_(pa.field("element", pa.int32())))
    marked = pa.field("x", pa.int32(), metadata={"id": "7"})
    at = pa.array([{"x": 1}, {"x": 2}], pa.struct([marked]))
    with tm.PriorityQueue(tmp_path, schema=schema) as queue:
        queue.push(pa.record_batch({"key": [1, 50], "tags": tags, "at": at}))
        assert len(queue.pop()) == 1
        queue.push(pa.record_batch({"key": [30, 20], "tags": tags, "at": at}))
        found = queue.peek(2).to_arrow()
        assert found.column("tags").to_pylist() == [[2], [1]]
        types = [str(found.column(name).type) for name in schema.names]
        assert types == [str(kind) for kind in schema.types]
        assert found.column("at").type.field(0).metadata is None


def test_every_fork_gets_them(queue: tm.PriorityQueue) -> None:
    fork = queue.fork("other")
    assert fork.pop(1).keys.to_pylist() == [6]
    queue.push(rows(UNSORTED))
    everything = sorted([*range(9, 100, 3), *UNSORTED])
    assert fork.pop(100).keys.to_pylist() == everything
    assert queue.pop(100).keys.to_pylist() == [6, *everything]


def test_a_delete_meanwhile_holds_for_them(queue: tm.PriorityQueue) -> None:
    queue.push(rows(UNSORTED))
    assert len(queue.peek(5)) == 5
    queue.push(rows(UNSORTED))
    queue.delete(10, 30)
    assert queue.pop(5).keys.to_pylist() == [6, 9, 33, 36, 39]
    assert queue.pop(2).values.to_pylist() == [b"40", b"40"]


def test_little_is_kept_while_nobody_pops(queue: tm.PriorityQueue) -> None:
    cursor = queue._cursor
    keys = list(range(80_000, 0, -1))
    for _ in range(8):
        queue.push([(key, b"x" * 10) for key in keys])
        assert cursor._inbox_bytes <= KEPT_BYTES_MAX
    kept = [source for source in cursor._inbox if source.held is not None]
    assert 0 < len(kept) < len(cursor._inbox) == 8
    assert cursor._inbox_bytes == sum(source.entry.length for source in kept)
    found = [key for key, value in queue.pop(-1).rows() if value != b"before"]
    assert found == sorted(keys * 8)
    assert cursor._inbox_bytes == 0


def test_little_is_kept_of_what_is_pushed_behind_all_that_is_popped(
    queue: tm.PriorityQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = next(iter(queue._cursor._merges.values()))._late
    monkeypatch.setattr(late, "_bytes_max", 64 * 1024)
    for number in range(30):
        queue.push([(10**6 + key, b"x" * 40) for key in range(20, 0, -1)])
        assert queue.pop(1).keys.to_pylist() == [6 + 3 * number]
    held = [source for source in late.far if source.held is not None]
    assert 0 < len(held) < len(late.far) == 30
    assert sum(source.entry.length for source in held[:-1]) < 16 * 1024
    assert len(queue.pop(-1)) == 600 + 2
