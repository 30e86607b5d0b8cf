"""Two open queues have one fingerprint if they know the same, and never if they do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.checker import MAIN
from tests.faults.driven_queue import ROOT, DrivenQueue, open_queue
from tests.faults.fingerprint import fingerprint
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Image
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.state.state import ROOT as ROOT_FORK


def _image() -> Image:
    driven = DrivenQueue()
    driven.push([5, 150])
    driven.push([5])
    driven.fork("a", MAIN)
    driven.pop("a", 1)
    return driven.fs.image()


def _opened(image: Image) -> PriorityQueue:
    fs = MemoryFileSystem(image)
    fs.boot = bytes(16)
    return open_queue(fs)


def _miscount(queue: PriorityQueue) -> None:
    queue._core.folder.state.forks[ROOT_FORK].live += 1


def _forget_a_cut(queue: PriorityQueue) -> None:
    fork = queue._core.folder.state.named("a")
    assert fork is not None
    fork.cuts = type(fork.cuts)()


def _lose_a_frame(queue: PriorityQueue) -> None:
    table = queue._core.folder.journal.active.table
    assert table is not None
    table._count -= 1


def _index_another(queue: PriorityQueue) -> None:
    queue._core.folder.index.hold(7, queue._core.folder.journal.active.number)


def _trust_what_is_old(queue: PriorityQueue) -> None:
    queue._core.folder.reader.own_from = 0


def _lose_a_byte(queue: PriorityQueue) -> None:
    """Under the open handle alone."""
    queue._core.folder.fs.open(ROOT / "journal" / f"{1:016d}.segment", write=True).truncate(100)


CHANGES = [
    _miscount,
    _forget_a_cut,
    _lose_a_frame,
    _index_another,
    _trust_what_is_old,
    _lose_a_byte,
]


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_in_memory_shows(change: Callable[[PriorityQueue], None]) -> None:
    image = _image()
    before, after = _opened(image), _opened(image)
    assert fingerprint(before) == fingerprint(after)
    change(after)
    assert fingerprint(before) != fingerprint(after)


def test_what_has_no_value_is_refused() -> None:
    queue = _opened(_image())
    with open(Path(__file__).resolve(), "rb") as strange:
        queue.strange = strange  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="cannot pickle"):
            fingerprint(queue)
