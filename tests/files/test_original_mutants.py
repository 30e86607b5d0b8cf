"""The faults of the original, put back one by one: the test of each must find it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from tests.faults.mutation import drop_failed_pushes, mutated
from tests.files import test_original_faults as faults
from tidemill.batch import frame, plain, sizes
from tidemill.files.commit.preparation import Preparation
from tidemill.files.journal import scan
from tidemill.files.journal.journal import Journal
from tidemill.files.merge import frame_reader, run
from tidemill.files.merge.cursor import Cursor
from tidemill.files.recovery.recovery import Recovery
from tidemill.files.state.cut import Cut
from tidemill.files.state.state import State

Patch: TypeAlias = pytest.MonkeyPatch
Check: TypeAlias = Callable[[Path], None]


def changed(owner: Any, name: str, old: str, new: str) -> Callable[[Patch], None]:
    """Replaces a part of the source of a function, of a class or a module."""
    return lambda patch: patch.setattr(owner, name, mutated(getattr(owner, name), old, new))


def _digest(of: Callable[[bytes], int]) -> Callable[[Patch], None]:
    """Writes and compares another checksum of what a record holds."""

    def apply(patch: Patch) -> None:
        for module, name in (
            (frame, "xxh3_64_intdigest"),
            (plain, "xxh3_64_intdigest"),
            (scan, "_digest"),
        ):
            patch.setattr(module, name, lambda data: of(bytes(data)))

    return apply


def _torn_tail_kept(patch: Patch) -> None:
    """What comes next is written behind the bytes that were torn."""
    old = "one.segment.file.truncate(committed.end)"
    new = "one.segment.end = -(-one.segment.file.size() // 64) * 64"
    patch.setattr(Recovery, "_cut_tail", mutated(Recovery._cut_tail, old, new))


def _length_counts_batches(patch: Patch) -> None:
    patch.setattr(
        State, "push", mutated(State.push, "fork.live += rows", "fork.live += min(rows, 1)")
    )
    # Else it is noticed that there are more than there should be.
    patch.setattr(State, "cut", mutated(State.cut, "fork.live < 0", "False"))


def _every_fork_is_emptied(patch: Patch) -> None:
    whole = State.cut

    def cut(self: State, fork_id: int, cut: Cut, rows: int) -> None:
        for fork in self.forks.values():
            whole(self, fork.id, cut, min(rows, fork.live))

    patch.setattr(State, "cut", cut)


def _sorts_in_place(patch: Patch) -> None:
    whole = Preparation.given

    def given(self: Preparation, data: object, key: str | None = None) -> Any:
        if isinstance(data, list):
            data.sort()
        return whole(self, data, key)

    patch.setattr(Preparation, "given", given)


MUTANTS: dict[Check, Callable[[Patch], None]] = {
    faults.test_forks_do_not_vanish_on_reopening_and_keep_their_data: changed(
        State, "to_json", "for fork in self.forks.values()", "for fork in [self.forks[ROOT]]"
    ),
    faults.test_peek_returns_n_items_and_not_n_for_each_bucket: changed(
        Cursor, "_select", "wanted -= choice.rows", "pass"
    ),
    faults.test_a_push_in_full_mode_syncs_all_that_finding_it_again_needs: changed(
        Journal, "settle", "self._sync_all()", "pass"
    ),
    faults.test_a_torn_tail_is_cut_off_and_later_pushes_do_not_land_behind_it: _torn_tail_kept,
    faults.test_one_good_byte_does_not_make_a_record_whole: _digest(lambda data: data[-1]),
    faults.test_a_flipped_bit_in_a_payload_is_never_handed_out: _digest(lambda data: 0),
    faults.test_delete_takes_the_right_batch_among_those_with_equal_first_keys: changed(
        frame_reader,
        "_covered",
        "run.keys.searchsorted(lows[is_simple], ",
        "run.keys[:1].searchsorted(0 * lows[is_simple], ",
    ),
    faults.test_the_length_of_a_fork_that_is_not_loaded_counts_items_and_not_batches: (
        _length_counts_batches
    ),
    faults.test_emptying_one_fork_leaves_the_others_alone: _every_fork_is_emptied,
    faults.test_equal_keys_are_first_in_first_out: (
        lambda patch: patch.setattr(run, "sort_order", lambda keys, seqs: np.lexsort((-seqs, keys)))
    ),
    faults.test_keys_near_the_limits_of_integers_are_compared_and_not_subtracted: (
        lambda patch: patch.setattr(
            run, "sort_order", lambda keys, seqs: np.lexsort((seqs, keys - keys[0]))
        )
    ),
    faults.test_push_leaves_the_callers_data_as_it_was: _sorts_in_place,
    faults.test_the_limit_of_64_mib_is_checked_before_anything_is_written: (
        lambda patch: patch.setattr(sizes, "row_bytes", lambda column: 0)
    ),
    faults.test_a_push_that_fails_is_reported_also_when_told_to_continue: (drop_failed_pushes),
    faults.test_no_open_buckets_at_all_can_be_asked_for: changed(
        Cursor, "__init__", "= buckets_open_max", "= buckets_open_max or 4"
    ),
}


def test_every_fault_has_a_mutant() -> None:
    tests = {name for name in vars(faults) if name.startswith("test_")}
    # A real kill takes no mutant of its own: unsynced pushes survive one.
    tests.remove("test_what_was_reported_synced_survives_a_kill")
    assert {check.__name__ for check in MUTANTS} == tests


@pytest.mark.parametrize("check", MUTANTS, ids=lambda check: check.__name__.removeprefix("test_"))
def test_a_fault_that_is_put_back_is_found(
    check: Check, tmp_path: Path, monkeypatch: Patch
) -> None:
    check(tmp_path / "as it is")
    MUTANTS[check](monkeypatch)
    # By the test itself, and not by something that the mutant broke on the way.
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        check(tmp_path / "mutant")
