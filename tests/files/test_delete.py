"""Delete removes a range of keys, both ends included, from one consuming end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tests.faults.memory_fs import MemoryFileSystem
from tidemill.limits import INT64_MAX, INT64_MIN


def keys(end: tm.PriorityQueue | tm.Fork) -> list[int]:
    return list(end.peek(-1).keys.to_pylist())


@pytest.mark.parametrize(
    ("low", "high", "left"),
    [
        (0, 2, [3, 4, 5, 6, 7, 8, 9]),
        (7, 9, [0, 1, 2, 3, 4, 5, 6]),
        (3, 6, [0, 1, 2, 7, 8, 9]),
        (4, 4, [0, 1, 2, 3, 5, 6, 7, 8, 9]),
        (-5, 100, []),
        (10, 20, list(range(10))),
    ],
    ids=["left", "right", "middle", "one key", "everything", "nothing"],
)
@pytest.mark.parametrize("bucket", [tm.Shift(), tm.Width(3)], ids=["one bucket", "many buckets"])
def test_a_batch_is_trimmed_on_the_left_on_the_right_and_in_the_middle(
    tmp_path: Path, low: int, high: int, left: list[int], bucket: tm.Shift | tm.Width
) -> None:
    with tm.PriorityQueue(tmp_path, bucket=bucket) as queue:
        queue.push([(key, b"") for key in range(10)])
        assert queue.delete(low, high) == 10 - len(left)
        assert len(queue) == len(left)
        assert keys(queue) == left
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(-1).keys.to_pylist() == left


def test_all_items_with_a_key_at_either_end_are_deleted(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"1") for key in (1, 1, 2, 3, 3)])
        queue.push([(key, b"2") for key in (0, 1, 3, 4)])
        assert queue.delete(1, 3) == 7
        assert queue.pop(-1).rows() == [(0, b"2"), (4, b"2")]


def test_every_key_there_is_can_be_deleted(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Shift(0)) as queue:
        queue.push([(key, b"") for key in (INT64_MIN, -1, 0, INT64_MAX)])
        assert queue.delete(INT64_MAX, INT64_MAX) == 1
        assert queue.delete(INT64_MIN, INT64_MIN) == 1
        assert queue.delete(INT64_MIN, INT64_MAX) == 2


def test_a_range_that_ends_before_it_begins_is_an_error(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"")])
        with pytest.raises(tm.InvalidInput, match="lower key to the higher"):
            queue.delete(2, 1)
        assert len(queue) == 1


@pytest.mark.parametrize("key", [1.5, True, None, "1", 2**63, -(2**63) - 1])
def test_only_int64_bounds_a_delete(tmp_path: Path, key: object) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"")])
        with pytest.raises(tm.InvalidKey):
            queue.delete(key, 5)  # type: ignore[arg-type]
        with pytest.raises(tm.InvalidKey):
            queue.delete(0, key)  # type: ignore[arg-type]
        assert len(queue) == 1


def test_a_later_push_into_a_deleted_range_stays(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"old"), (5, b"old")])
        queue.delete(0, 3)
        queue.push([(2, b"new")])
        assert queue.pop(-1).rows() == [(2, b"new"), (5, b"old")]


def test_what_was_popped_is_not_counted_again(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(10)])
        queue.pop(3)
        assert queue.delete(0, 5) == 3
        assert queue.delete(4, 7) == 2
        assert queue.delete(0, 7) == 0
        assert keys(queue) == [8, 9]


def test_a_bucket_function_is_not_asked_about_keys_that_nobody_pushed(tmp_path: Path) -> None:
    def picky(keys: object) -> object:
        if (keys < 0).any() or (keys > 1_000).any():  # type: ignore[operator, attr-defined]
            raise ValueError("there are no such keys")
        return keys // 10  # type: ignore[operator]

    with tm.PriorityQueue(tmp_path, bucket=tm.Custom("picky", picky)) as queue:  # type: ignore[arg-type]
        queue.push([(key, b"") for key in range(0, 100, 5)])
        assert queue.delete(-50, 49) == 10
        assert queue.delete(INT64_MIN, INT64_MAX) == 10


@given(
    pushed=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6),
    ranges=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=5),
    width=st.sampled_from([1, 4, 100]),
)
def test_deleting_agrees_with_filtering_a_list(
    pushed: list[list[int]], ranges: list[tuple[int, int]], width: int
) -> None:
    path = Path("/queue")
    with tm.PriorityQueue(path, bucket=tm.Width(width), file_system=MemoryFileSystem()) as queue:
        for batch in pushed:
            queue.push([(key, b"") for key in batch])
        model = sorted(key for batch in pushed for key in batch)
        for one, other in ranges:
            low, high = min(one, other), max(one, other)
            kept = [key for key in model if not low <= key <= high]
            assert queue.delete(low, high) == len(model) - len(kept)
            assert keys(queue) == kept
            model = kept


def calls_of(work: Callable[[], object]) -> int:
    """How many functions it calls; the time would depend on the machine."""
    calls = 0

    def count(_frame: object, event: str, _of: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def test_a_delete_costs_the_same_however_many_came_before(tmp_path: Path) -> None:
    def delete(key: int) -> None:
        queue.delete(key, key)
        queue.peek()

    with tm.PriorityQueue(tmp_path, sync="none", maintain_in_background=False) as queue:
        queue.push([(key, b"x") for key in range(2_000)])
        early = [calls_of(partial(delete, key)) for key in range(1, 21, 2)]
        for key in range(21, 1_980, 2):
            queue.delete(key, key)
        late = [calls_of(partial(delete, key)) for key in range(1_981, 2_000, 2)]
        assert queue.stats().cuts == 1_000
        assert max(late) <= 1.2 * max(early)
        assert queue.pop(-1).keys.to_pylist() == list(range(0, 2_000, 2))


def test_deletes_that_all_overlap_cost_the_same_however_many_came_before(tmp_path: Path) -> None:
    """As of all that is due from a time on, again and again: none takes the place of another."""

    def cancel(key: int) -> None:
        assert queue.delete(key + 1, INT64_MAX) == 1
        assert queue.peek().keys.to_pylist() == [0]

    def push(key: int) -> None:
        queue.push([(key, b"stays")])
        queue.push([(10**6 - key, b"goes")])

    early, late = [], []
    with tm.PriorityQueue(
        tmp_path, sync="none", bucket=tm.Shift(63), maintain_in_background=False
    ) as queue:
        for key in range(500):
            push(key)
            calls = calls_of(partial(cancel, key))
            # Fewer frames than are unpacked at a time cost less.
            if 260 <= key < 270:
                early.append(calls)
            if key >= 490:
                late.append(calls)
        assert queue.stats().cuts == 500
        assert max(late) <= 1.2 * max(early)
        few = calls_of(partial(queue.pop, 10))
        many = calls_of(partial(queue.pop, 100))
        # Of each frame that is read, no more is asked than of the first ones.
        assert many <= 12 * few
        assert queue.pop(-1).keys.to_pylist() == list(range(110, 500))
