"""The enumeration of crash states finds what a crash may leave, and finds bad stores out."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.checker import ACKNOWLEDGED, ATTEMPTED, PrefixModel, UniqueValues, bounds
from tests.faults.crash_states import (
    CrashState,
    Limits,
    count_states,
    enumerate_states,
    replay_state,
)
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.pending import Pending
from tests.faults.trace import Image
from tidemill.files.disk.filesystem import File, FileSystem

A, B = Path("/a"), Path("/b")

Shown: TypeAlias = tuple[tuple[str, bytes], ...]


def _contents(state: CrashState, path: Path = A) -> bytes | None:
    try:
        return state.file_system().open(path).pread(1 << 20, 0)
    except FileNotFoundError:
        return None


def _durable(name: str = "a") -> tuple[MemoryFileSystem, File]:
    """A file system with one empty file whose name lasts."""
    fs = MemoryFileSystem()
    fs.open(Path("/") / name, create=True).close()
    fs = MemoryFileSystem(fs.image())
    return fs, fs.open(Path("/") / name, write=True)


def test_a_write_may_be_lost_until_it_is_synced() -> None:
    fs, file = _durable()
    file.pwrite([b"data"], 0)
    fs.mark("written")
    file.sync()
    fs.mark("synced")
    left: dict[int, set[bytes | None]] = {0: set(), 1: set(), 2: set()}
    for state in enumerate_states(fs.trace):
        left[len(state.marks)].add(_contents(state))
    assert left == {0: {b"", b"data", bytes(4)}, 1: {b"", b"data", bytes(4)}, 2: {b"data"}}


def test_a_name_may_be_lost_until_its_folder_is_synced() -> None:
    fs = MemoryFileSystem()
    file = fs.open(A, create=True)
    file.pwrite([b"data"], 0)
    file.sync()
    fs.mark("file synced")
    fs.sync_folder(Path("/"))
    fs.mark("folder synced")
    states = list(enumerate_states(fs.trace))
    assert {_contents(s) for s in states if len(s.marks) == 1} == {None, b"data"}
    assert {_contents(s) for s in states if len(s.marks) == 2} == {b"data"}


def test_a_name_may_last_while_the_bytes_do_not() -> None:
    fs = MemoryFileSystem()
    fs.open(A, create=True).pwrite([b"data"], 0)
    fs.sync_folder(Path("/"))
    fs.mark("folder synced")
    states = [state for state in enumerate_states(fs.trace) if state.marks]
    assert {_contents(state) for state in states} == {b"", b"data", bytes(4)}


def test_a_rename_may_be_undone_until_its_folder_is_synced() -> None:
    fs, file = _durable()
    file.pwrite([b"old"], 0)
    file.sync()
    new = fs.open(B, create=True)
    new.pwrite([b"new"], 0)
    new.sync()
    fs.rename(B, A)
    fs.mark("renamed")
    fs.sync_folder(Path("/"))
    fs.mark("lasts")
    states = list(enumerate_states(fs.trace))
    left = {(_contents(s, A), _contents(s, B)) for s in states if len(s.marks) == 1}
    assert left == {(b"old", None), (b"old", b"new"), (b"new", None)}
    left = {(_contents(s, A), _contents(s, B)) for s in states if len(s.marks) == 2}
    assert left == {(b"new", None)}


def test_a_file_renamed_between_folders_is_never_without_a_name() -> None:
    fs, file = _durable()
    file.pwrite([b"data"], 0)
    file.sync()
    fs.make_folder(Path("/sub"))
    fs.sync_folder(Path("/"))
    fs.mark("before")
    fs.rename(A, Path("/sub/a"))
    fs.mark("renamed")
    fs.sync_folder(Path("/sub"))
    fs.mark("new name")
    fs.sync_folder(Path("/"))
    fs.mark("old name")
    states = list(enumerate_states(fs.trace))
    left = [
        {(_contents(s, A), _contents(s, Path("/sub/a"))) for s in states if len(s.marks) == count}
        for count in (2, 3, 4)
    ]
    both = {(b"data", b"data"), (None, b"data")}
    assert left == [{(b"data", None), *both}, both, {(None, b"data")}]


def test_an_unlink_may_be_undone_until_its_folder_is_synced() -> None:
    fs, file = _durable()
    file.pwrite([b"data"], 0)
    file.sync()
    fs.unlink(A)
    fs.mark("unlinked")
    fs.sync_folder(Path("/"))
    fs.mark("lasts")
    states = list(enumerate_states(fs.trace))
    assert {_contents(s) for s in states if len(s.marks) == 1} == {None, b"data"}
    assert {_contents(s) for s in states if len(s.marks) == 2} == {None}


def test_what_is_in_a_lost_folder_is_lost() -> None:
    fs = MemoryFileSystem()
    fs.make_folder(Path("/sub"))
    file = fs.open(Path("/sub/a"), create=True)
    file.pwrite([b"data"], 0)
    file.sync()
    fs.sync_folder(Path("/sub"))
    fs.mark("done")
    names = {
        tuple(state.file_system().list_folder(Path("/")))
        for state in enumerate_states(fs.trace)
        if state.marks
    }
    assert names == {(), ("sub",)}


def test_truncates_and_allocations_are_lost_or_kept_too() -> None:
    fs, file = _durable()
    file.pwrite([b"abcdef"], 0)
    file.sync()
    fs.mark("synced")
    file.truncate(2)
    file.allocate(4)
    left = {_contents(state) for state in enumerate_states(fs.trace) if state.marks}
    assert left == {b"abcdef", b"ab", b"ab\0\0"}


def test_writes_of_one_file_and_of_two_are_lost_in_any_order() -> None:
    fs, file = _durable()
    other = fs.open(B, create=True)
    other.sync()
    fs.sync_folder(Path("/"))
    fs.mark("start")
    file.pwrite([b"1"], 0)
    other.pwrite([b"2"], 0)
    file.pwrite([b"3"], 1)
    left = {
        (_contents(s, A), _contents(s, B))
        for s in enumerate_states(fs.trace)
        if s.marks and s.choice.torn is None
    }
    ones = {b"", b"1", b"\x003", b"13"}
    assert left == {(one, two) for one in ones for two in (b"", b"2")}


def test_the_last_write_is_torn_at_edges_or_at_every_byte_and_by_sectors() -> None:
    fs, file = _durable()
    file.allocate(4096)
    file.sync()
    data = bytes(range(1, 251)) * 6
    file.pwrite([data], 100)
    left = {_contents(state) for state in enumerate_states(fs.trace, tear="bytes")}

    def disk(*kept: tuple[int, int]) -> bytes:
        whole = bytearray(4096)
        for low, high in kept:
            whole[low:high] = data[low - 100 : high - 100]
        return bytes(whole)

    assert {disk((100, end)) for end in range(100, 1601)} < left
    bounds = [100, 512, 1024, 1536, 1600]
    assert {disk((low, 1600)) for low in bounds} < left
    sectors = list(pairwise(bounds))
    assert {disk((100, low), (high, 1600)) for low, high in sectors} < left
    assert {disk(sector) for sector in sectors} < left
    edges = {_contents(state) for state in enumerate_states(fs.trace)}
    assert {disk((100, end)) for end in range(128, 1600, 64)} < edges
    assert len(edges) < len(left)


def test_a_hole_and_a_tear_come_together() -> None:
    fs, file = _durable()
    file.pwrite([b"a" * 64], 0)
    file.pwrite([b"b" * 64], 64)
    file.pwrite([b"c" * 128], 128)
    left = {_contents(state) for state in enumerate_states(fs.trace)}
    assert b"a" * 64 + bytes(64) + b"c" * 64 in left
    assert bytes(64) + b"b" * 64 + b"c" * 64 in left
    assert bytes(128) + b"c" * 64 in left


def test_what_a_failed_sync_dropped_no_later_sync_brings_back() -> None:
    memory, _ = _durable()
    fs = FailingFileSystem(memory, fail_at=1, kinds=frozenset({"sync"}))
    file = fs.open(A, write=True)
    file.pwrite([b"one"], 0)
    with pytest.raises(OSError, match="injected"):
        file.sync()
    file.pwrite([b"2"], 1)
    file.sync()
    memory.mark("synced at last")
    assert fs.fired
    left = {_contents(state) for state in enumerate_states(memory.trace) if state.marks}
    assert left == {b"\x002", b"o2e", b"\x002\x00"}


def test_a_state_is_seen_once_for_each_promise() -> None:
    fs, file = _durable()
    fs.mark("attempt", promise=False)
    file.pwrite([b"x"], 0)
    fs.mark("another attempt", promise=False)
    assert len(list(enumerate_states(fs.trace))) == 3
    fs.mark("promise")
    assert len(list(enumerate_states(fs.trace))) == 6
    assert count_states(fs.trace) == (6, 4)


def test_what_two_traces_share_need_not_be_looked_at_again() -> None:
    fs, file = _durable()
    file.pwrite([b"one"], 0)
    shared = len(fs.trace.operations)
    before = {state.id for state in enumerate_states(fs.trace)}
    file.pwrite([b"two"], 3)
    file.sync()
    fs.mark("synced")
    later = list(enumerate_states(fs.trace, since=shared))
    assert min(state.point for state in later) > shared
    everything = {state.id for state in enumerate_states(fs.trace)}
    assert everything == before | {state.id for state in later}


def test_files_that_do_not_count_tell_no_states_apart() -> None:
    fs, file = _durable()
    other = fs.open(A.with_name("b"), create=True)
    fs.sync_folder(A.parent)
    file.pwrite([b"x"], 0)
    other.pwrite([b"y"], 0)
    all_contents = [_contents(state) for state in enumerate_states(fs.trace)]
    contents = [_contents(state) for state in enumerate_states(fs.trace, ignored="b")]
    assert sorted(contents, key=str) == sorted(set(all_contents), key=str)
    assert len(contents) < len(all_contents)


def test_a_state_comes_again_from_its_id() -> None:
    fs = _good_store(MemoryFileSystem(), 3)
    for state in enumerate_states(fs.trace, tear="bytes"):
        again = replay_state(fs.trace, state.id)
        assert again.image == state.image
        assert again.marks == state.marks
        assert state.id in state.describe()


def test_a_budget_thins_out_evenly_and_keeps_the_telling_states() -> None:
    fs = _bad_store(MemoryFileSystem(), 30)
    total, telling = count_states(fs.trace)
    budget = (total + telling) // 2
    ids = [state.id for state in enumerate_states(fs.trace, budget=budget)]
    assert 0.8 * budget < len(ids) < 1.2 * budget
    assert ids == [state.id for state in enumerate_states(fs.trace, budget=budget)]
    assert ids != [state.id for state in enumerate_states(fs.trace, budget=budget, seed=1)]
    everything_kept = {s.point for s in enumerate_states(fs.trace, budget=1)}
    assert everything_kept == {s.point for s in enumerate_states(fs.trace)}


_LENGTH = 64


def _good_store(fs: MemoryFileSystem, count: int, *, syncs: bool = True) -> MemoryFileSystem:
    """Records of a fixed length, each with a mark of its end, appended to one file."""
    model = PrefixModel()
    values = UniqueValues(length=_LENGTH - 1)
    file = fs.open(A, create=True)
    file.allocate(4096)
    file.sync()
    fs.sync_folder(Path("/"))
    for index in range(count):
        (pair,) = values.pairs([index])
        fs.mark(ATTEMPTED, model.push([pair]), promise=False)
        file.pwrite([pair[1], b"!"], index * _LENGTH)
        if syncs:
            file.sync()
        fs.mark(ACKNOWLEDGED, model.attempted)
    fs.mark("model", model)
    return fs


def _bad_store(fs: MemoryFileSystem, count: int) -> MemoryFileSystem:
    return _good_store(fs, count, syncs=False)


def _recovered(fs: FileSystem) -> dict[str, list[tuple[int, bytes]]]:
    pairs = []
    try:
        file = fs.open(A)
    except FileNotFoundError:
        return {"main": []}
    for index in range(file.size() // _LENGTH):
        record = file.pread(_LENGTH, index * _LENGTH)
        if not record.startswith(b"#") or not record.endswith(b"!"):
            break
        pairs.append((index, record[:-1]))
    return {"main": pairs}


def _judge(fs: MemoryFileSystem) -> tuple[int, int]:
    """How many states there were, and how many of them were wrong."""
    model = fs.trace.operations[-1].payload  # type: ignore[union-attr]
    assert isinstance(model, PrefixModel)
    states = wrong = 0
    for state in enumerate_states(fs.trace, tear="bytes"):
        acknowledged, attempted = bounds(state.marks)
        states += 1
        try:
            model.check(
                _recovered(state.file_system()), acknowledged=acknowledged, attempted=attempted
            )
        except AssertionError:
            wrong += 1
    return states, wrong


def test_a_store_that_syncs_before_it_acknowledges_is_never_wrong() -> None:
    states, wrong = _judge(_good_store(MemoryFileSystem(), 8))
    assert states > 8 * _LENGTH
    assert wrong == 0


def test_a_store_that_acknowledges_without_a_sync_is_found_out() -> None:
    _, wrong = _judge(_bad_store(MemoryFileSystem(), 8))
    assert wrong > 8


def test_a_store_without_its_folder_synced_is_found_out() -> None:
    good = _good_store(MemoryFileSystem(), 2)
    fs = MemoryFileSystem()
    fs.trace.operations = [
        operation for operation in good.trace.operations if "sync_folder" not in str(operation)
    ]
    assert _judge(fs)[1] > 0


@given(st.data())
def test_nothing_is_missed_and_nothing_made_up(data: st.DataObject) -> None:
    """Against all subsets at all points, which is too dear for long traces."""
    fs = MemoryFileSystem()
    after = [fs.image()]
    for _ in range(data.draw(st.integers(1, 10))):
        _do_something(fs, data)
        after += [fs.image()] * (len(fs.trace.operations) + 1 - len(after))
    found: set[Shown] = set()
    torn: set[Shown] = set()
    for state in enumerate_states(fs.trace, limits=Limits(subsets=20)):
        (found if state.choice.torn is None else torn).add(_shown(state.image))
    expected: set[Shown] = set()
    pending = Pending(fs.trace.initial)
    for point in range(len(fs.trace.operations) + 1):
        expected |= {_shown(pending.image(kept, None)) for kept in range(1 << len(pending.units))}
        everything = pending.image((1 << len(pending.units)) - 1, None)
        assert _shown(everything) == _shown(after[point])
        if point < len(fs.trace.operations):
            pending.apply(fs.trace.operations[point])
    # A state may come first by a tear, which then stands for it.
    assert found <= expected <= found | torn


def _shown(image: Image) -> Shown:
    return tuple((path, image.contents[inode].whole()) for path, inode in image.files().items())


_KINDS = (
    "create",
    "write",
    "write",
    "truncate",
    "sync",
    "rename",
    "unlink",
    "folder",
    "sync_folder",
)


def _do_something(fs: MemoryFileSystem, data: st.DataObject) -> None:
    path, other = (Path(data.draw(st.sampled_from(["/a", "/b", "/sub/a"]))) for _ in range(2))
    offset = data.draw(st.integers(0, 3))
    kind = data.draw(st.sampled_from(_KINDS))
    try:
        match kind:
            case "create":
                fs.open(path, create=True)
            case "rename":
                fs.rename(path, other)
            case "unlink":
                fs.unlink(path)
            case "folder":
                fs.make_folder(Path("/sub"))
            case "sync_folder":
                fs.sync_folder(path.parent)
            case "write":
                file = fs.open(path, write=True)
                file.pwrite([data.draw(st.binary(min_size=1, max_size=3))], offset)
            case "truncate":
                fs.open(path, write=True).truncate(offset)
            case "sync":
                fs.open(path).sync()
    except (FileNotFoundError, FileExistsError):
        fs.mark(f"could not {kind}")


def test_states_are_cheap(report: object) -> None:
    fs = MemoryFileSystem()
    file = fs.open(A, create=True)
    file.allocate(1 << 16)
    for index in range(40):
        file.pwrite([bytes([index + 1]) * 700], index * 704)
        if index % 8 == 7:
            file.sync()
            fs.mark("synced")
    started = time.perf_counter()
    count = len([state.file_system() for state in enumerate_states(fs.trace)])
    each_ms = (time.perf_counter() - started) * 1000 / count
    assert count > 1000
    assert callable(report)
    report(f"making a crash state takes {each_ms * 1000:.0f} µs ({count} states)")
