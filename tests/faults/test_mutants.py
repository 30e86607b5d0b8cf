"""The faults that these suites are for, put back one by one: each must be found.

A suite that passes proves little unless it fails on code that is wrong. Every mutant here is a
fault of the original, or one that a store of this kind is known for; a small part of the suite that
should notice it has to raise.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pytest

from tests.faults import test_queue_bit_flips as bit_flips
from tests.faults import test_queue_crash_states as crash_states
from tests.faults import test_queue_io_errors as io_errors
from tests.faults.bit_flips import flipped_bits
from tests.faults.checker import MAIN, Violation
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_queue import DrivenQueue, Judge, contents, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.mutation import drop_failed_pushes
from tidemill.batch import frame
from tidemill.errors import Corrupt, TidemillError
from tidemill.files.commit.operation import Operation, Retire
from tidemill.files.folder.folder_options import FolderOptions
from tidemill.files.format import record, summary
from tidemill.files.journal import scan
from tidemill.files.journal.journal import Journal
from tidemill.files.journal.segment import Segment
from tidemill.files.merge import run
from tidemill.files.queue.consuming_end import ConsumingEnd
from tidemill.files.recovery import recovery
from tidemill.files.recovery.recovery import Recovery
from tidemill.files.state.cut import NO_OTHERS, Cuts
from tidemill.files.state.state import ROOT as ROOT_FORK
from tidemill.files.state.state import State

pytestmark = pytest.mark.usefixtures("small_limits")

Patch: TypeAlias = pytest.MonkeyPatch


# The checks: parts of the other suites, small enough to run for each mutant.


def _crashes(*names: str) -> None:
    """Crash states of a few operations."""
    queue = crash_states._driven(names, "full")
    states = enumerate_states(queue.fs.trace, budget=80)
    crash_states._judge_all(Judge(), queue, names, states)


def _kills() -> None:
    """A process killed while it rolls, and then a power cut."""
    queue = crash_states._driven(("roll",), "none")
    trace = queue.fs.trace
    judge = Judge(sync="none")
    for point in range(1, len(trace.operations) + 1):
        fs = MemoryFileSystem.replayed(trace, point)
        crash_states._kill_then_cut(judge, queue, fs, point)


def _reopens() -> None:
    """Each operation in turn, with the queue closed and opened behind it."""
    queue = DrivenQueue()
    steps: list[Callable[[], None]] = [
        lambda: queue.push([5, 1, 150, 5]),
        lambda: queue.push([5, 1, 2]),
        lambda: queue.push([5]),
        lambda: queue.fork("a", MAIN),
        lambda: queue.pop("a", 2),
        lambda: queue.delete(MAIN, 1, 2),
        lambda: queue.push_large([7, 8, 9]),
        lambda: queue.push_large([7, 8, 9]),
        lambda: queue.clear("a"),
        lambda: queue.push([6]),
    ]
    for step in steps:
        step()
        queue.model.check(contents(queue.queue), acknowledged=queue.model.attempted)
        queue.reopen()
        queue.model.check(contents(queue.queue), acknowledged=queue.model.attempted)


def _pushes_behind_torn_tails() -> None:
    """What is pushed after a crash is still there after the next opening."""
    queue = crash_states._driven(("push many",), "full")
    for state in enumerate_states(queue.fs.trace, budget=40):
        fs = state.file_system()
        again = open_queue(fs)
        before = contents(again)[MAIN]
        again.push([(10**6, b"later")])
        fs.die()
        after = contents(open_queue(fs))[MAIN]
        if after != [*before, (10**6, b"later")]:
            raise Violation(f"{after} instead of {before} and one more")


def _flips(suffix: str, count: int = 250) -> None:
    """Flipped bits of one kind of file."""
    store = bit_flips.small_store(closed=True)
    damages = list(flipped_bits(store.image, chosen=lambda path: path.endswith(suffix)))
    for damage in random.Random(3).sample(damages, count):
        bit_flips._abort(store, damage)


def _misdirected_writes() -> None:
    """Records in the place of others."""
    store = bit_flips.small_store(closed=True)
    for damage in bit_flips._misplaced_records(store):
        bit_flips._abort(store, damage)


def _errors(error: int, *kinds: str) -> None:
    """I/O errors at calls of some kinds."""
    io_errors._fail_everywhere(error, "once", 100, kinds=frozenset(kinds))


# The mutants: how each fault is put back.


def _no_sync(patch: Patch) -> None:
    patch.setattr(Journal, "_sync_file", lambda self, segment: None)


def _pushes_unsynced(patch: Patch) -> None:
    patch.setattr(FolderOptions, "syncs_pushes", property(lambda self: False))


def _torn_tail_kept(patch: Patch) -> None:
    whole = recovery._committed

    def kept(one: Any, vouched: int, expected_end: int | None) -> Any:
        found = whole(one, vouched, expected_end)
        return found._replace(end=found.end + 64) if found.lost and found.end else found

    patch.setattr(recovery, "_committed", kept)
    patch.setattr(Segment, "is_dirty", lambda segment: False)


def _commit_mark_ignored(patch: Patch) -> None:
    whole = record.unpack_envelope

    def unpack(data: bytes | memoryview, place: int) -> Any:
        found = whole(data, place)
        return None if found is None else found._replace(commit=True)

    patch.setattr(scan, "unpack_envelope", unpack)


def _payload_unchecked(patch: Patch) -> None:
    patch.setattr(scan, "_digest", lambda payload: _Any())
    patch.setattr(frame, "xxh3_64_intdigest", lambda body: _Any())


class _Any:
    """Equal to everything: a checksum that always matches."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _place_ignored(patch: Patch) -> None:
    whole = record.unpack_envelope

    def unpack(data: bytes | memoryview, place: int) -> Any:
        try:
            return whole(data, place)
        except Corrupt as problem:
            if "belongs at place" not in problem.reason:
                raise
            found = whole(data, int.from_bytes(bytes(data[16:24]), "little"))
            return None if found is None else found._replace(place=place)

    patch.setattr(scan, "unpack_envelope", unpack)


def _equal_keys_last_in_first_out(patch: Patch) -> None:
    patch.setattr(run, "sort_order", lambda keys, seqs: np.lexsort((-seqs, keys)))


def _delete_exclusive(patch: Patch) -> None:
    whole = ConsumingEnd.delete
    patch.setattr(ConsumingEnd, "delete", lambda self, low, high: whole(self, low, high - 1))


def _forks_not_in_the_state(patch: Patch) -> None:
    whole = State.to_json

    def to_json(self: State, *words: Any) -> bytes:
        forks = self.forks
        self.forks = {ROOT_FORK: forks[ROOT_FORK]}
        try:
            return whole(self, *words)
        finally:
            self.forks = forks

    patch.setattr(State, "to_json", to_json)


def _length_counts_batches(patch: Patch) -> None:
    whole = State.push

    def push(self: State, first_seq: int, rows: int) -> None:
        whole(self, first_seq, rows)
        for fork in self.forks.values():
            fork.live += 1 - rows

    patch.setattr(State, "push", push)


def _segments_go_before_their_retirement_lasts(patch: Patch) -> None:
    whole = Operation.__init__

    def init(self: Operation, *given: Any, **words: Any) -> None:
        whole(self, *given, **words)
        if isinstance(self, Retire):
            self.sync = False

    patch.setattr(Operation, "__init__", init)


def _names_unsynced_by_recovery(patch: Patch) -> None:
    patch.setattr(Recovery, "_make_last", lambda self, segment: None)
    whole = Recovery.run

    def run(self: Recovery) -> Any:
        sync = self._fs.sync_folder
        try:
            self._fs.sync_folder = lambda path: None  # type: ignore[method-assign]
            return whole(self)
        finally:
            self._fs.sync_folder = sync  # type: ignore[method-assign]

    patch.setattr(Recovery, "run", run)


def _failed_syncs_forgotten(patch: Patch) -> None:
    patch.setattr(Journal, "check", lambda self: None)


def _failed_writes_left_in_place(patch: Patch) -> None:
    def undo(self: Journal, segment: Segment, error: OSError) -> TidemillError:
        segment.end += 64
        return Corrupt("written in part")

    patch.setattr(Journal, "_undo", undo)


def _summary_unchecked(patch: Patch) -> None:
    patch.setattr(summary, "_digest", lambda data: _Any())


def _carried_rows_lose_their_cuts(patch: Patch) -> None:
    patch.setattr(Cuts, "takes_touching", lambda self, place, keys, seqs: [])
    patch.setattr(Cuts, "others_touching", lambda self, place, keys, seqs: NO_OTHERS)


class Mutant(NamedTuple):
    """A fault, and the check that must find it."""

    apply: Callable[[Patch], None]
    check: Callable[[], None]


MUTANTS: dict[str, Mutant] = {
    "sync does nothing": Mutant(_no_sync, lambda: _crashes("push many")),
    "pushes are not synced": Mutant(_pushes_unsynced, lambda: _crashes("push one")),
    "a torn tail is kept": Mutant(_torn_tail_kept, _pushes_behind_torn_tails),
    "the commit mark is ignored": Mutant(_commit_mark_ignored, lambda: _crashes("push buckets")),
    "payloads are not checked": Mutant(_payload_unchecked, lambda: _flips(".segment")),
    "places are not checked": Mutant(_place_ignored, _misdirected_writes),
    "equal keys come out last in, first out": Mutant(_equal_keys_last_in_first_out, _reopens),
    "delete leaves out its upper end": Mutant(_delete_exclusive, _reopens),
    "forks are not in the state": Mutant(_forks_not_in_the_state, _reopens),
    "len counts batches": Mutant(_length_counts_batches, _reopens),
    "consumed rows of split frames come back": Mutant(_carried_rows_lose_their_cuts, _reopens),
    "segments go too early": Mutant(
        _segments_go_before_their_retirement_lasts, lambda: _crashes("upkeep")
    ),
    "recovery syncs nothing": Mutant(_names_unsynced_by_recovery, _kills),
    "failed syncs are forgotten": Mutant(
        _failed_syncs_forgotten, lambda: _errors(errno.EIO, "sync")
    ),
    "failed writes stay": Mutant(
        _failed_writes_left_in_place, lambda: _errors(errno.ENOSPC, "pwrite")
    ),
    "failures are swallowed": Mutant(
        drop_failed_pushes, lambda: _errors(errno.ENOSPC, "allocate", "pwrite")
    ),
    "summaries are not checked": Mutant(_summary_unchecked, lambda: _flips(".summary")),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_that_is_put_back_is_found(name: str, monkeypatch: Patch) -> None:
    mutant = MUTANTS[name]
    mutant.check()
    mutant.apply(monkeypatch)
    with pytest.raises((AssertionError, TidemillError)):
        mutant.check()
