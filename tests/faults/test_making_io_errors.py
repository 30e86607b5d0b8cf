"""A disk that fails at every call while a queue is made, opened again and its schema grows: each
error is typed, nothing acknowledged is lost, and a healthy disk takes the same calls afterwards.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

import tidemill as tm
from tests.faults.io_errors import FailingFileSystem, Stickiness
from tests.faults.memory_fs import MemoryFileSystem
from tidemill.files.disk.filesystem import FileSystem

Tally: TypeAlias = Callable[[str, int], None]

QUEUE = Path("/new/folders/queue")
NARROW = pa.schema([("a", pa.int64())])
WIDE = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def _open(fs: FileSystem, schema: pa.Schema) -> tm.PriorityQueue:
    return tm.PriorityQueue(QUEUE, schema=schema, file_system=fs, maintain_in_background=False)


def _make(fs: FileSystem, acknowledged: list[int]) -> None:
    """Make a queue and let its schema grow; what each push returned for is noted."""
    for number, schema in enumerate((NARROW, WIDE)):
        with _open(fs, schema) as queue:
            queue.push([(number, dict.fromkeys(schema.names, number))])
            acknowledged.append(number)


@pytest.mark.slow
@pytest.mark.parametrize("sticky", ["once", "kind", "changes", "all"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC], ids=["EIO", "ENOSPC"])
def test_an_error_at_any_call_of_making_a_queue_is_typed_and_loses_nothing(
    error: int, sticky: Stickiness, tally: Tally
) -> None:
    counting = FailingFileSystem(MemoryFileSystem())
    _make(counting, [])
    failed = 0
    for number in range(1, counting.calls + 1):
        fs = MemoryFileSystem()
        disk = FailingFileSystem(fs, fail_at=number, error=error, sticky=sticky)
        acknowledged: list[int] = []
        try:
            _make(disk, acknowledged)
        except tm.TidemillError:
            failed += 1
        assert disk.fired, number
        disk.heal()
        fs.die()
        with _open(fs, WIDE) as queue:
            found = queue.pop(-1).keys.to_pylist()
            assert found[: len(acknowledged)] == acknowledged, disk.log[number - 1]
            assert found in ([], [0], [0, 1])
            queue.push([(2, {"a": 2, "b": 2})])
            assert len(queue) == 1
    # Some calls may fail without harm: what they do is derived, or a warning says so.
    assert failed > counting.calls // 2
    tally("calls of making a queue that failed", counting.calls)
