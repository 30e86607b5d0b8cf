"""What one node does with counters of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tidemill as tm
from tests.counters.nodes import StandingClock, meet, node
from tidemill.limits import COUNTER_NAME_LENGTH_MAX, INT64_MAX, INT64_MIN


def test_an_upsert_makes_a_counter_and_returns_its_value() -> None:
    one = node("a")
    assert [one.upsert("x", delta) for delta in (100, -30, 0)] == [100, 70, 70]
    assert one.get("x") == 70
    assert one.upsert("zero", 0) == 0
    assert one.all() == ({"x": 70, "zero": 0}, {})


def test_a_counter_that_is_not_there_is_an_error() -> None:
    one = node("a")
    for call in (one.get, one.delete, one.parts, one.expiry_us, lambda n: one.update_ttl(n, 5)):
        with pytest.raises(tm.NoSuchCounter, match="no counter 'x'"):
            call("x")
    assert one.all() == ({}, {})
    assert one.seal() is None


def test_many_updates_are_the_sum_of_each() -> None:
    one = node("a")
    one.upsert("b", 5)
    assert one.upsert_many(["a", "b", "a"], [1, 2, 3]).tolist() == [4, 7, 4]
    assert one.upsert_many(pa.array(["a", "c"]), pa.array([1, 1], pa.int8())).tolist() == [5, 1]
    assert one.upsert_many(["a"] * 3, cast(Any, np.int8(2))).tolist() == [11] * 3
    assert one.upsert_many(np.array(["c"]).tolist(), np.array([4])).tolist() == [5]
    assert one.upsert_many([], []).tolist() == []
    assert one.upsert("a", 1) == 12
    assert one.all()[0] == {"a": 12, "b": 7, "c": 5}


def _is_text(array: pa.Array) -> bool:
    return bool(array.type == pa.string())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda array: array.cast(pa.string_view() if _is_text(array) else pa.uint64()),
        lambda array: array.cast(pa.large_string() if _is_text(array) else pa.int16()),
        lambda array: array.dictionary_encode(),
        lambda array: pa.DictionaryArray.from_arrays(
            array.dictionary_encode().indices,
            array.dictionary_encode().dictionary.cast(
                pa.string_view() if _is_text(array) else pa.int8()
            ),
        ),
        pc.run_end_encode,
        lambda array: pa.chunked_array([array[:1], array[1:]]),
        lambda array: pa.chunked_array([array.dictionary_encode()]),
    ],
)
def test_columns_count_however_arrow_keeps_them(wrap: Callable[[pa.Array], pa.Array]) -> None:
    one = node("a")
    names, deltas = pa.array(["a", "b", "a"]), pa.array([1, 2, 3])
    assert one.upsert_many(wrap(names), wrap(deltas)).tolist() == [4, 2, 4]
    with pytest.raises(tm.InvalidName, match="missing"):
        one.upsert_many(wrap(pa.array(["a", None, "a"])), 1)
    with pytest.raises(tm.InvalidInput, match="missing"):
        one.upsert_many(names, wrap(pa.array([1, None, 3])))
    assert one.all()[0] == {"a": 4, "b": 2}


def test_bytes_that_are_no_text_are_no_names() -> None:
    buffers = [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")]
    with pytest.raises(tm.InvalidName, match="UTF8"):
        node("a").upsert_many(pa.Array.from_buffers(pa.string(), 1, buffers), 1)


def test_what_has_no_hash_is_no_name() -> None:
    one, name = node("a"), cast(Any, [])
    for call in (one.upsert, one.get, one.delete, one.parts, one.expiry_us):
        with pytest.raises(tm.InvalidName, match="not list"):
            call(name)


@pytest.mark.parametrize(
    "name", ["", "a b", "ä", "x" * (COUNTER_NAME_LENGTH_MAX + 1), "a\n", "\ud800", None, 7, 2**70]
)
def test_a_name_outside_the_grammar_leaves_no_trace(name: str) -> None:
    one = node("a")
    with pytest.raises(tm.InvalidName):
        one.upsert(name, 1)
    with pytest.raises(tm.InvalidName):
        one.upsert_many(["fine", name], 1)
    # So many go another way.
    with pytest.raises(tm.InvalidName):
        one.upsert_many([*(f"fine-{n}" for n in range(100)), name], 1)
    assert one.all() == ({}, {})
    assert one.seal() is None


def test_a_name_may_be_long_and_look_like_a_path() -> None:
    one = node("a")
    name = "requests:/login@eu.west-1_b".ljust(COUNTER_NAME_LENGTH_MAX, "x")
    assert one.upsert(name) == 1


@pytest.mark.parametrize("delta", [1.0, "1", None, True, 2**63, -(2**63) - 1, np.True_])
def test_a_delta_is_a_whole_number_within_int64(delta: int) -> None:
    one = node("a")
    for _ in range(2):
        with pytest.raises(tm.InvalidInput):
            one.upsert("x", delta)
    with pytest.raises(tm.InvalidInput):
        one.upsert_many(["x"], [delta])
    assert one.seal() is None
    one.upsert("x", np.int32(4))  # type: ignore[arg-type]
    assert one.get("x") == 4


def test_deltas_fit_the_names() -> None:
    one = node("a")
    with pytest.raises(tm.InvalidInput, match="2 names and 1 deltas"):
        one.upsert_many(["a", "b"], [1])
    with pytest.raises(tm.InvalidInput, match="one; upsert"):
        one.upsert_many("ab", 1)
    with pytest.raises(tm.InvalidInput):
        one.upsert_many(["a"], pa.array([None], pa.int64()))
    with pytest.raises(tm.InvalidInput):
        one.upsert_many(["a"], np.array([2**63], dtype=np.uint64))
    with pytest.raises(tm.InvalidInput, match="whole numbers within int64"):
        one.upsert_many(["a", "b"], cast(Any, [[1], [2, 3]]))


@pytest.mark.parametrize(("most", "step"), [(INT64_MAX, 1), (INT64_MIN, -1)])
def test_an_overflow_is_an_error_and_adds_nothing(most: int, step: int) -> None:
    one = node("a")
    one.upsert("x", most)
    for _ in range(2):
        with pytest.raises(tm.CounterOverflow, match="'x'"):
            one.upsert("x", step)
        with pytest.raises(tm.CounterOverflow):
            one.upsert_many(["y", "x"], [1, step])
        with pytest.raises(tm.CounterOverflow):
            one.upsert_many(["y"] * 3, [most, step, step])
        one.seal()
    assert one.all()[0] == {"x": most}
    # What passes the bound on the way and comes back is no overflow.
    assert one.upsert_many(["x"] * 2, [step, -step]).tolist() == [most] * 2


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(("most", "step"), [(INT64_MAX, -1), (INT64_MIN, 1)])
def test_what_others_brought_out_of_range_is_told_and_can_be_brought_back(
    most: int, step: int, many: bool
) -> None:
    one, other = node("a"), node("b")
    one.upsert("x", most)
    other.upsert("x", -step * 10)
    meet(one, other)

    def add(delta: int) -> int:
        return int(one.upsert_many(["new", "x"], [0, delta])[1]) if many else one.upsert("x", delta)

    with pytest.raises(tm.CounterOverflow, match=f"'x' has left .* to {most - step * 10}: bring"):
        one.get("x")
    for too_little in (0, step * 9, -step):
        with pytest.raises(tm.CounterOverflow, match="nothing was added"):
            add(too_little)
    assert "new" not in one.all()[0]
    assert add(step * 11) == one.get("x") == most + step


def test_a_deleted_counter_is_not_there_and_starts_again() -> None:
    one = node("a")
    one.upsert("x", 10)
    one.delete("x")
    with pytest.raises(tm.NoSuchCounter):
        one.get("x")
    with pytest.raises(tm.NoSuchCounter):
        one.delete("x")
    assert one.all() == ({}, {})
    assert one.upsert("x", 3) == 3
    one.delete("x")
    assert one.upsert_many(["x"], [4]).tolist() == [4]


class TestExpiry:
    clock = StandingClock()

    def setup_method(self) -> None:
        self.clock = StandingClock(1_000)
        self.one = node("a", clock=self.clock)
        self.one.upsert("x", 10)
        self.one.update_ttl("x", 1_005 * 10**6)

    def test_it_is_there_until_its_time(self) -> None:
        self.clock.now_s = 1_004.9
        assert self.one.get("x") == 10
        assert self.one.upsert("x", 1) == 11
        assert self.one.expiry_us("x") == 1_005 * 10**6

    def test_then_it_is_expired_and_then_not_there(self) -> None:
        self.clock.now_s = 1_005
        with pytest.raises(tm.CounterExpired):
            self.one.get("x")
        assert self.one.all() == ({}, {"x": 10})
        assert self.one.collect() == 0
        with pytest.raises(tm.NoSuchCounter):
            self.one.get("x")
        self.one.seal()
        assert self.one.collect() == 1
        assert len(self.one.state.table) == 0

    @pytest.mark.parametrize("many", [False, True])
    def test_an_upsert_of_an_expired_counter_starts_again_at_delta(self, many: bool) -> None:
        self.one.upsert("x", 1)
        self.clock.now_s = 1_006
        after = self.one.upsert_many(["x"], [3])[0] if many else self.one.upsert("x", 3)
        assert after == 3
        assert self.one.expiry_us("x") is None
        self.clock.now_s = 1e6
        assert self.one.get("x") == 3

    def test_a_new_time_revives_it(self) -> None:
        self.clock.now_s = 1_006
        self.one.update_ttl("x", 1_007 * 10**6)
        assert self.one.get("x") == 10
        self.one.update_ttl("x", None)
        self.clock.now_s = 1e9
        assert self.one.get("x") == 10
        assert self.one.collect() == 0

    def test_collecting_spares_what_was_revived(self) -> None:
        self.clock.now_s = 1_006
        self.one.update_ttl("x", 1_010 * 10**6)
        assert self.one.collect() == 0
        assert self.one.get("x") == 10

    def test_a_clock_that_jumps_back_loses_nothing(self) -> None:
        self.one.seal()
        self.clock.now_s = 10
        assert self.one.upsert("x", 1) == 11
        self.one.update_ttl("x", None)
        self.one.seal()
        assert self.one.get("x") == 11
