"""Keys are int64, from integers and instants; everything else is refused with its row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.batch import keys as keys_module
from tidemill.batch.keys import keys_from_array, keys_from_values, stable_order
from tidemill.errors import InvalidKey
from tidemill.limits import INT64_MAX, INT64_MIN

int64 = st.integers(INT64_MIN, INT64_MAX)
NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)
NOON_NS = 1_709_208_000_123_456_000


@given(st.lists(int64))
def test_any_int64_is_a_key(values: list[int]) -> None:
    assert keys_from_values(values).tolist() == values
    assert keys_from_array(pa.array(values, pa.int64())).tolist() == values


def test_int64_columns_are_not_copied() -> None:
    column = pa.array([1, 2, 3]).slice(1)
    keys = keys_from_array(column)
    assert keys.tolist() == [2, 3]
    assert keys.ctypes.data == column.buffers()[1].address + 8


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
)
def test_smaller_integers_are_keys(kind: pa.DataType) -> None:
    assert keys_from_array(pa.array([9, 0, 100], kind).slice(1)).tolist() == [0, 100]


def test_numpy_integers_are_keys() -> None:
    assert keys_from_values([np.int64(-1), np.uint8(2), 3]).tolist() == [-1, 2, 3]


def test_dictionaries_of_integers_are_keys() -> None:
    assert keys_from_array(pa.array([5, 5, 6]).dictionary_encode()).tolist() == [5, 5, 6]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_become_nanoseconds(unit: str) -> None:
    column = pa.array([NOON, NOON]).cast(pa.timestamp(unit, "Europe/Brussels"), safe=False)
    digits = {"s": 9, "ms": 6, "us": 3, "ns": 0}[unit]
    assert keys_from_array(column.slice(1)).tolist() == [NOON_NS // 10**digits * 10**digits]


def test_datetimes_become_nanoseconds() -> None:
    east = NOON.astimezone(timezone(timedelta(hours=5)))
    stamp = pd.Timestamp(NOON) + pd.Timedelta(7, "ns")
    assert keys_from_values([NOON, east, stamp, 1]).tolist() == [NOON_NS, NOON_NS, NOON_NS + 7, 1]
    before = datetime(1960, 1, 1, tzinfo=UTC)
    assert keys_from_values([before]).tolist() == [int(before.timestamp()) * 10**9]


@pytest.mark.parametrize(
    "wrong",
    [
        *[None, True, False, 1.0, float("nan"), "1", b"1", [], np.float64(1), np.bool_(True)],
        *[INT64_MAX + 1, INT64_MIN - 1, np.uint64(2**63), 10**30, pd.NaT],
        *[NOON.replace(tzinfo=None), datetime(9999, 1, 1, tzinfo=UTC), np.datetime64(0, "ns")],
    ],
)
def test_what_is_no_key_is_refused_with_its_row(wrong: Any) -> None:
    with pytest.raises(InvalidKey, match="row 2"):
        keys_from_values([1, 2, wrong, 3])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 2, None]),
        pa.array([1, 2, 2**63], pa.uint64()),
        pa.array([0, 0, 2**62], pa.timestamp("us", "UTC")),
        pa.array([0, 0, -(2**62)], pa.timestamp("s", "UTC")),
    ],
    ids=str,
)
def test_a_column_with_one_bad_key_is_refused_with_its_row(column: pa.Array) -> None:
    with pytest.raises(InvalidKey, match="row 2"):
        keys_from_array(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.0]),
        pa.array([True]),
        pa.array(["1"]),
        pa.array([NOON.replace(tzinfo=None)]),
        pa.array([NOON.date()]),
        pa.array([[1]]),
    ],
    ids=str,
)
def test_a_column_of_another_type_is_refused(column: pa.Array) -> None:
    with pytest.raises(InvalidKey, match=r"time zone|not "):
        keys_from_array(column)


@given(
    st.integers(INT64_MIN, INT64_MAX), st.sampled_from([("s", 10**9), ("ms", 10**6), ("us", 1000)])
)
def test_an_instant_is_exact_or_refused(value: int, unit: tuple[str, int]) -> None:
    column = pa.array([value], pa.int64()).view(pa.timestamp(unit[0], "UTC"))
    exact = value * unit[1]
    if INT64_MIN <= exact <= INT64_MAX:
        assert keys_from_array(column).tolist() == [exact]
    else:
        with pytest.raises(InvalidKey, match="row 0"):
            keys_from_array(column)


@pytest.mark.parametrize("digit_cost", [0.0, 1.0], ids=["digits", "packed"])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (INT64_MIN, INT64_MAX),
        (INT64_MIN, INT64_MIN + 9),
        (-(2**40), 2**40),
        (2**62, 2**62 + 2**17),
        (-5, 5),
        (7, 7),
    ],
)
def test_many_keys_are_sorted_alike_in_whichever_way_is_faster(
    low: int, high: int, digit_cost: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys_module, "_digit_cost", lambda: digit_cost)
    dice = np.random.default_rng(1)
    array = dice.integers(low, high, 3 * keys_module._MANY, endpoint=True)
    array[::7] = array[0]
    before = array.copy()
    assert np.array_equal(stable_order(array), np.argsort(array, kind="stable"))
    assert np.array_equal(array, before)


def test_what_sorting_by_a_digit_takes_is_measured_once() -> None:
    cost = keys_module._digit_cost()
    assert cost > 0
    assert keys_module._digit_cost() == cost


@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1) | st.integers(-5, 5) | st.integers(2**62, 2**62 + 9),
        max_size=60,
    )
)
def test_the_stable_order_is_that_of_a_stable_sort(keys: list[int]) -> None:
    array = np.array(keys, np.int64)
    assert stable_order(array).tolist() == sorted(range(len(keys)), key=keys.__getitem__)
    assert array.tolist() == keys
