"""Bucket functions divide the key space; the lowest bucket is served first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.files.state.bucket import BucketFunction, choose, split
from tidemill.limits import INT64_MAX, INT64_MIN

int64 = st.integers(INT64_MIN, INT64_MAX)
functions = st.one_of(
    st.builds(tm.Shift, st.integers(0, 63)), st.builds(tm.Width, st.integers(1, INT64_MAX))
)


@given(functions, st.lists(int64, min_size=1, max_size=20))
def test_no_bucket_falls_while_keys_rise(function: BucketFunction, keys: list[int]) -> None:
    buckets = function(np.array(sorted(keys), np.int64))
    assert (buckets[1:] >= buckets[:-1]).all()


@given(functions, st.lists(int64, min_size=1, max_size=20))
def test_a_split_gives_each_bucket_its_own_stretch(
    function: BucketFunction, keys: list[int]
) -> None:
    ordered = np.array(sorted(keys), np.int64)
    parts = split(ordered, function)
    assert [start for _, start, _ in parts] == [0, *(stop for _, _, stop in parts[:-1])]
    assert parts[-1][2] == len(keys)
    assert len({bucket for bucket, _, _ in parts}) == len(parts)
    for bucket, start, stop in parts:
        assert function(ordered[start:stop]).tolist() == [bucket] * (stop - start)


@given(st.integers(-1000, 1000), st.integers(1, 50))
def test_a_width_is_right_for_negative_keys_too(key: int, width: int) -> None:
    assert tm.Width(width)(np.array([key])).tolist() == [key // width]


@given(int64, st.integers(0, 63))
def test_a_shift_divides_by_a_power_of_two_and_rounds_down(key: int, bits: int) -> None:
    assert tm.Shift(bits)(np.array([key], np.int64)).tolist() == [key >> bits]


def test_the_default_is_about_two_minutes_of_nanoseconds(tmp_path: Path) -> None:
    minute = 60 * 10**9
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key * minute, b"") for key in range(24)])
        assert queue.stats().buckets == 11


def test_the_lowest_bucket_is_served_first(tmp_path: Path) -> None:
    hours = tm.Custom("hours", lambda keys: keys // 3_600)
    with tm.PriorityQueue(tmp_path, bucket=hours) as queue:
        queue.push([(9_000, b"c"), (10, b"a"), (4_000, b"b")])
        assert queue.stats().buckets == 3
        assert queue.pop(2).values.to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize(
    ("made_with", "opened_with"),
    [
        (tm.Shift(4), tm.Shift(5)),
        (tm.Width(10), tm.Width(11)),
        (tm.Shift(), tm.Width(10)),
        (tm.Custom("mine", lambda keys: keys), tm.Custom("yours", lambda keys: keys)),
        (tm.Custom("mine", lambda keys: keys), tm.Shift(0)),
    ],
)
def test_opening_with_another_function_is_refused_with_both_named(
    tmp_path: Path, made_with: BucketFunction, opened_with: BucketFunction
) -> None:
    with tm.PriorityQueue(tmp_path, bucket=made_with) as queue:
        queue.push([(1, b"a")])
    with pytest.raises(tm.BucketMismatch) as found:
        tm.PriorityQueue(tmp_path, bucket=opened_with)
    assert made_with.description in str(found.value)
    assert opened_with.description in str(found.value)
    with tm.PriorityQueue(tmp_path, bucket=made_with) as queue:
        assert len(queue) == 1


@pytest.mark.parametrize("function", [tm.Shift(7), tm.Width(1_000)])
def test_a_recorded_function_need_not_be_given_again(
    tmp_path: Path, function: BucketFunction
) -> None:
    with tm.PriorityQueue(tmp_path, bucket=function) as queue:
        queue.push([(key, b"") for key in range(0, 10_000, 999)])
        buckets = queue.stats().buckets
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"")])
        assert queue.stats().buckets == buckets


def test_a_function_of_your_own_has_to_be_given_again(tmp_path: Path) -> None:
    tens = tm.Custom("tens", lambda keys: keys // 10)
    with tm.PriorityQueue(tmp_path, bucket=tens) as queue:
        queue.push([(5, b"a"), (15, b"b")])
    with pytest.raises(tm.BucketMismatch, match="custom:tens"):
        tm.PriorityQueue(tmp_path)
    with tm.PriorityQueue(tmp_path, bucket=tens) as queue:
        assert queue.pop(2).values.to_pylist() == [b"a", b"b"]


@pytest.mark.parametrize(
    "function",
    [
        lambda keys: -keys,
        lambda keys: keys / 2,
        lambda keys: keys[:1],
        lambda keys: None,
        lambda keys: 1 // 0,
    ],
    ids=["falls", "gives floats", "gives too few", "gives nothing", "raises"],
)
def test_a_function_that_misbehaves_is_a_typed_error_and_nothing_is_pushed(
    tmp_path: Path, function: object
) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Custom("odd", function)) as queue:  # type: ignore[arg-type]
        with pytest.raises(tm.InvalidInput, match="'odd'"):
            queue.push([(1, b"a"), (2, b"b"), (30, b"c")])
        assert len(queue) == 0
        assert queue.stats().next_seq == 1


@pytest.mark.parametrize("bits", [-1, 64, 1.0, True, None])
def test_a_shift_takes_0_to_63_bits(bits: object) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.Shift(bits)  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [0, -1, 2**63, 1.5, True, None])
def test_a_width_is_a_positive_int64(width: object) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.Width(width)  # type: ignore[arg-type]


def test_a_function_of_your_own_has_a_name_and_can_be_called() -> None:
    with pytest.raises(tm.InvalidName):
        tm.Custom("no/good", lambda keys: keys)
    with pytest.raises(tm.InvalidInput):
        tm.Custom("fine", None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("recorded", "given", "advice"),
    [
        ("shift:37", tm.Width(5), "open it without `bucket`"),
        ("custom:mine", tm.Width(5), r"bucket=tm.Custom\('mine', function\)"),
        ("custom:mine", tm.Custom("other", lambda keys: keys), r"tm.Custom\('mine', function\)"),
        ("custom:mine", None, r"tm.Custom\('mine', function\)"),
        ("spiral:5", None, "a newer one"),
        ("spiral:5", tm.Shift(), "a newer one"),
    ],
)
def test_a_refusal_says_what_to_do(
    recorded: str, given: BucketFunction | None, advice: str
) -> None:
    with pytest.raises(tm.BucketMismatch, match=advice):
        choose(recorded, given)
