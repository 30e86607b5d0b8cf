"""Types and values on their way into a queue: what changes, what is refused, and how it says so."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tidemill.batch.columns import (
    check_depth,
    column_from_values,
    normalise_column,
    normalise_columns,
)
from tidemill.batch.types import normal_type
from tidemill.errors import SchemaMismatch
from tidemill.limits import SCHEMA_DEPTH_MAX

NOON = datetime(2024, 2, 29, 12, tzinfo=UTC)
INSTANT = pa.timestamp("us", "UTC")


class Celsius(pa.ExtensionType):  # type: ignore[misc]
    """A type of somebody else's; as those that Python defines, it has no hash."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


BECOMES = [
    (pa.array(["a", None], pa.large_utf8()), pa.utf8()),
    (pa.array(["a", None], pa.string_view()), pa.utf8()),
    (pa.array([b"a", None], pa.large_binary()), pa.binary()),
    (pa.array([b"a", None], pa.binary_view()), pa.binary()),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
    (pa.array(["a", "a", None]).dictionary_encode(), pa.utf8()),
    (pa.array([b"a", b"a"]).dictionary_encode(), pa.binary()),
    (pa.compute.run_end_encode(pa.array([7, 7, 8])), pa.int64()),
    (pa.array([255, None], pa.uint8()), pa.int16()),
    (pa.array([65535, None], pa.uint16()), pa.int32()),
    (pa.array([2**32 - 1, None], pa.uint32()), pa.int64()),
    (pa.array([2**63 - 1, None], pa.uint64()), pa.int64()),
    (pa.array([NOON, None], pa.timestamp("s", "UTC")), INSTANT),
    (pa.array([NOON, None], pa.timestamp("ns", "Asia/Tokyo")), INSTANT),
    (pa.array([1, None], pa.timestamp("ms")), pa.timestamp("us")),
    (pa.array([1, None], pa.duration("s")), pa.duration("us")),
    (pa.array([Decimal("1.50")], pa.decimal32(5, 2)), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.50")], pa.decimal64(5, 2)), pa.decimal128(5, 2)),
    (pa.array([Decimal("1.50")], pa.decimal256(38, 2)), pa.decimal128(38, 2)),
    (pa.array([["a"], None, []], pa.large_list(pa.large_utf8())), pa.list_(pa.utf8())),
    (pa.array([["a"], None, []], pa.list_view(pa.utf8())), pa.list_(pa.utf8())),
    (pa.array([[1, 2], None], pa.list_(pa.uint8(), 2)), pa.list_(pa.int16())),
    (
        pa.array([["a", "b"], None, []], pa.list_(pa.dictionary(pa.int8(), pa.utf8()))),
        pa.list_(pa.utf8()),
    ),
    (
        pa.array([[["a"], None], None, []], pa.list_(pa.list_view(pa.utf8()))),
        pa.list_(pa.list_(pa.utf8())),
    ),
    (
        pa.array([{"a": "x"}, None], pa.struct([("a", pa.dictionary(pa.int8(), pa.utf8()))])),
        pa.struct([("a", pa.utf8())]),
    ),
    (
        pa.array(
            [{"a": 1, "b": "x"}, None], pa.struct([("a", pa.uint8()), ("b", pa.large_utf8())])
        ),
        pa.struct([("a", pa.int16()), ("b", pa.utf8())]),
    ),
    (
        pa.array([[("a", 1)], None], pa.map_(pa.utf8(), pa.uint8())),
        pa.map_(pa.utf8(), pa.int16()),
    ),
    (
        pa.array(
            [[("a", "x")], None, [("b", "y"), ("c", None)], []],
            pa.map_(pa.utf8(), pa.dictionary(pa.int8(), pa.utf8())),
        ),
        pa.map_(pa.utf8(), pa.utf8()),
    ),
    (
        pa.array([None, [("a", [1, 2]), ("b", None)]], pa.map_(pa.utf8(), pa.list_view(pa.int8()))),
        pa.map_(pa.utf8(), pa.list_(pa.int8())),
    ),
    (pa.array([b"a" * 16]).cast(pa.binary(16)).view(pa.uuid()), pa.binary()),
    (pa.ExtensionArray.from_storage(Celsius(), pa.array([1.5, None])), pa.float64()),
]


@pytest.mark.parametrize(("given", "becomes"), BECOMES, ids=[str(a.type) for a, _ in BECOMES])
def test_a_type_becomes_its_normal_form_and_keeps_its_values(
    given: pa.Array, becomes: pa.DataType
) -> None:
    assert normal_type(given.type, "c") == becomes
    for array in (given, given.slice(1)):
        found = normalise_column(array, pa.field("c", becomes))
        assert found.type == becomes
        found.validate(full=True)
        plain = array.storage if isinstance(array, pa.ExtensionArray) else array
        assert found.to_pylist() == plain.to_pylist()


@pytest.mark.parametrize(
    "kind",
    [
        pa.float16(),
        pa.date64(),
        pa.month_day_nano_interval(),
        pa.time32("s"),
        pa.time64("us"),
        pa.null(),
        pa.decimal256(76, 2),
        pa.decimal128(10, -2),
        pa.decimal128(2, 5),
        pa.struct([]),
        pa.struct([("a", pa.int8()), ("a", pa.int8())]),
        pa.struct([("", pa.int8())]),
        pa.sparse_union([pa.field("a", pa.int8())]),
        pa.list_(pa.float16()),
        pa.struct([("deep", pa.list_(pa.date64()))]),
    ],
    ids=str,
)
def test_a_type_that_spark_cannot_hold_is_refused_by_column(kind: pa.DataType) -> None:
    with pytest.raises(SchemaMismatch, match="column 'c"):
        normal_type(kind, "c")


def test_a_type_nested_too_deep_is_refused() -> None:
    kind = pa.int64()
    for _ in range(31):
        kind = pa.list_(kind)
    assert normal_type(kind, "c") == kind
    for _ in range(5):
        kind = pa.list_(kind)
    with pytest.raises(SchemaMismatch, match="deeper"):
        normal_type(kind, "c")


@pytest.mark.parametrize(
    ("array", "wanted", "why"),
    [
        (pa.array([2**63], pa.uint64()), pa.int64(), "does not fit"),
        (pa.array([300]), pa.int8(), "does not fit"),
        (pa.array([1.5]), pa.int64(), "losing digits"),
        (pa.array([1.5]), pa.float32(), "losing digits"),
        (pa.array([2**60 + 1]), pa.float64(), "does not fit"),
        (pa.array([1], pa.timestamp("ns", "UTC")), INSTANT, "lose data"),
        (pa.array([1], pa.duration("ns")), pa.duration("us"), "lose data"),
        (pa.array([1], pa.timestamp("us")), INSTANT, "give them a time zone"),
        (pa.array([1], INSTANT), pa.timestamp("us"), "take the time zone off"),
        (pa.array(["a"]), pa.binary(), "encode it"),
        (pa.array([b"a"]), pa.utf8(), "decode it"),
        (pa.array([True]), pa.int64(), "bool was given"),
        (pa.array([1]), pa.bool_(), "int64 was given"),
        (pa.array([Decimal("1.25")]), pa.decimal128(10, 1), "does not fit"),
        (pa.array([{"a": 1, "z": 2}]), pa.struct([("a", pa.int64())]), "was given"),
        (pa.array([date(2020, 1, 1)]), INSTANT, "was given"),
    ],
    ids=str,
)
def test_a_value_that_would_change_is_refused(
    array: pa.Array, wanted: pa.DataType, why: str
) -> None:
    with pytest.raises(SchemaMismatch, match=f"column 'c'.*{why}"):
        normalise_column(array, pa.field("c", wanted))


@pytest.mark.parametrize(
    ("array", "wanted"),
    [
        (pa.array([1, None]), pa.int8()),
        (pa.array([1, None]), pa.float64()),
        (pa.array([1.5], pa.float32()), pa.float64()),
        (pa.array([Decimal("1.5")]), pa.decimal128(20, 4)),
        (pa.nulls(3), pa.list_(pa.utf8())),
        (pa.array([None, None], pa.float16()), pa.utf8()),
    ],
    ids=str,
)
def test_a_value_that_stays_the_same_may_change_its_type(
    array: pa.Array, wanted: pa.DataType
) -> None:
    found = normalise_column(array, pa.field("c", wanted))
    assert found.type == wanted
    assert found.to_pylist() == array.to_pylist()


def test_columns_are_found_by_name_and_nullable_ones_may_be_missing() -> None:
    schema = pa.schema(
        [pa.field("a", pa.int64(), nullable=False), ("b", pa.utf8()), ("c", pa.int8())]
    )
    given = pa.record_batch({"b": ["x"], "a": [1]})
    found = normalise_columns(given, schema)
    assert found.schema.equals(schema)
    assert found.to_pylist() == [{"a": 1, "b": "x", "c": None}]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"b": ["x"]}, "'a' is missing"),
        ({"a": [1], "z": [1]}, "no column 'z'"),
        ({"a": [None], "b": ["x"]}, "row 0"),
        ({"a": [1], "b": [1]}, "'b' is string"),
    ],
)
def test_rows_that_do_not_fit_are_refused(columns: dict[str, list[Any]], why: str) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.utf8())])
    with pytest.raises(SchemaMismatch, match=why):
        normalise_columns(pa.record_batch(columns), schema)


def test_a_column_given_twice_is_refused() -> None:
    twice = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(SchemaMismatch, match="more than once"):
        normalise_columns(twice, pa.schema([("a", pa.int64())]))


def test_a_null_hidden_in_a_column_that_claims_none_is_refused() -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(SchemaMismatch, match="row 1"):
        normalise_columns(pa.record_batch([pa.array([1, None])], schema=schema), schema)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, None], pa.int16()),
        ([1.5, None], pa.float32()),
        ([1, 2.5], pa.float64()),
        ([b"a", bytearray(b"b"), None], pa.binary()),
        ([{"a": 1}, {"b": "x"}, None], pa.struct([("b", pa.utf8()), ("a", pa.int8())])),
        ([["a"], [], None, [None]], pa.list_(pa.utf8())),
        ([[], None], pa.list_(pa.utf8())),
        ([{"a": 1}, [("a", 1)], None], pa.map_(pa.utf8(), pa.int8())),
        ([NOON, None], INSTANT),
        ([5, Decimal("1.5")], pa.decimal128(10, 2)),
    ],
    ids=str,
)
def test_python_values_become_a_column(values: list[Any], wanted: pa.DataType) -> None:
    found = column_from_values(values, pa.field("c", wanted))
    assert found.type == wanted
    assert found.equals(pa.array(values, wanted))


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, "x"], pa.int64()),
        ([2**63], pa.int64()),
        ([2**70], pa.int64()),
        ([1.5], pa.int64()),
        ([b"a", "b"], pa.binary()),
        ([NOON.replace(tzinfo=None)], INSTANT),
        ([{"a": 1, "z": 1}], pa.struct([("a", pa.int64())])),
        ([[{"when": NOON.replace(tzinfo=None)}]], pa.list_(pa.struct([("when", INSTANT)]))),
        ([...], pa.int64()),
        ([{"a": "x"}], pa.map_(pa.utf8(), pa.int8())),
    ],
    ids=str,
)
def test_python_values_that_would_change_are_refused(
    values: list[Any], wanted: pa.DataType
) -> None:
    with pytest.raises(SchemaMismatch, match="column 'c'"):
        column_from_values(values, pa.field("c", wanted))


def _deep(levels: int) -> list[object]:
    found: list[object] = [1]
    for _ in range(levels):
        found = [found]
    return found


class Hiding(list[object]):
    """Says that it holds something else; Arrow does not ask."""

    def __iter__(self) -> Iterator[object]:
        return iter([1])


class HidingDict(dict[str, object]):
    def values(self) -> Any:
        return [1]


def test_what_holds_itself_is_refused_before_arrow_goes_down_into_it() -> None:
    twice: list[object] = []
    twice += [twice, twice]  # each level has two of the last
    within: dict[str, object] = {}
    within["in"] = within
    array = np.empty(2, object)
    array[0] = array
    values: dict[str, object] = {}
    values["a"] = values.values()
    hiding = Hiding()
    hiding.append(hiding)
    hidden = HidingDict(a=1)
    hidden["a"] = hidden
    lists = (twice, (twice,), _deep(100_000), hiding)
    for endless in (*lists, within, {"a": twice}, values.values(), hidden, array):
        with pytest.raises(SchemaMismatch, match="deeper than 32 levels"):
            check_depth([1, endless], "n")


def test_as_deep_as_a_type_may_be_is_not_too_deep() -> None:
    check_depth([_deep(SCHEMA_DEPTH_MAX)], "n")
    check_depth([np.zeros((2, 2)), np.array(5), {1, 2}, "text", np.array([[1], None], object)], "n")
