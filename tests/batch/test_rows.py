"""Every accepted form becomes the same rows; every other is refused and nothing is changed."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.samples import TYPED, typed_rows
from tidemill.batch import DEFAULT, Batch, Rows, to_rows
from tidemill.batch.sizes import check_sizes
from tidemill.errors import InvalidInput, InvalidKey, SchemaMismatch, TooLarge
from tidemill.limits import INT64_MAX, INT64_MIN, MIB

PAIRS = [(3, b"c"), (1, b""), (-2, b"a"), (3, b"d")]
KEYS = [key for key, _ in PAIRS]
VALUES = [value for _, value in PAIRS]
TABLE = pa.table({"key": KEYS, "value": pa.array(VALUES, pa.binary())})
CITIES = pa.schema([pa.field("id", pa.int64(), nullable=False), ("city", pa.utf8())])


class OnlyStream:
    """Anything that speaks Arrow and nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    """Likewise, as one array."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = table.combine_chunks().to_batches()[0]

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self._batch.__arrow_c_array__(requested_schema)


def pieces(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(n, 1) for n in range(len(table))])


FORMS: dict[str, Callable[[], Any]] = {
    "pairs": lambda: PAIRS,
    "lists": lambda: [list(pair) for pair in PAIRS],
    "tuple of pairs": lambda: tuple(PAIRS),
    "generator": lambda: (pair for pair in PAIRS),
    "bytearrays": lambda: [(key, bytearray(value)) for key, value in PAIRS],
    "views": lambda: [(key, memoryview(value)) for key, value in PAIRS],
    "numpy keys": lambda: [(np.int64(key), value) for key, value in PAIRS],
    "dicts": lambda: [{"key": key, "value": value} for key, value in PAIRS],
    "mappings": lambda: [UserDict({"key": key, "value": value}) for key, value in PAIRS],
    "pairs of dicts": lambda: [(key, {"value": value}) for key, value in PAIRS],
    "table": lambda: TABLE,
    "table in pieces": lambda: pieces(TABLE),
    "slice": lambda: pa.concat_tables([TABLE, TABLE]).combine_chunks().slice(4),
    "batch": lambda: TABLE.to_batches()[0],
    "reader": TABLE.to_reader,
    "stream": lambda: OnlyStream(pieces(TABLE)),
    "array": lambda: OnlyArray(TABLE),
    "structs": lambda: TABLE.to_struct_array().combine_chunks(),
    "views of Arrow": lambda: TABLE.cast(
        pa.schema([("key", pa.int64()), ("value", pa.binary_view())])
    ),
    "large": lambda: TABLE.cast(pa.schema([("key", pa.int32()), ("value", pa.large_binary())])),
    "polars": lambda: pl.DataFrame({"key": KEYS, "value": VALUES}),
    "pandas": lambda: pd.DataFrame({"key": KEYS, "value": VALUES}, index=[9, 8, 7, 6]),
    "pandas with a named index": lambda: pd.DataFrame(
        {"key": KEYS, "value": VALUES}, index=pd.Index([9, 8, 7, 6], name="value")
    ),
    "a batch of a queue": lambda: Batch.of(PAIRS, first_seq=100),
    "its rows": lambda: Batch.of(PAIRS).rows(),
    "its table": lambda: pa.table(Batch.of(PAIRS)),
    "its pandas": lambda: Batch.of(PAIRS).to_pandas(),
}


def pairs_of(rows: Rows) -> list[tuple[int, bytes]]:
    assert rows.keys is not None
    assert rows.keys.dtype == np.int64
    rows.payload.validate(full=True)
    return list(zip(rows.keys.tolist(), rows.payload.column("value").to_pylist(), strict=True))


@pytest.mark.parametrize("schema", [DEFAULT, None], ids=["recorded", "new"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_the_same_rows_is_the_same(form: str, schema: pa.Schema | None) -> None:
    rows = to_rows(FORMS[form](), schema=schema)
    assert pairs_of(rows) == PAIRS
    assert rows.payload.schema.equals(DEFAULT, check_metadata=True)
    assert len(rows) == 4


def typed_table() -> pa.Table:
    return pa.Table.from_batches([to_rows(typed_rows(20), schema=TYPED).payload])


@pytest.mark.parametrize(
    "form",
    [
        lambda: typed_rows(20),
        typed_table,
        lambda: pieces(typed_table()),
        lambda: typed_table().to_pandas(types_mapper=pd.ArrowDtype),
        lambda: OnlyStream(typed_table()),
        lambda: Batch.of(typed_rows(20), schema=TYPED).rows(),
        lambda: Batch.of(typed_rows(20), schema=TYPED),
        lambda: Batch.of(typed_rows(20), schema=TYPED).payload,
    ],
)
def test_typed_rows_survive_every_form(form: Callable[[], Any]) -> None:
    rows = to_rows(form(), schema=TYPED)
    assert rows.payload.equals(to_rows(typed_rows(20), schema=TYPED).payload)
    assert rows.payload.schema.equals(TYPED, check_metadata=True)


@pytest.mark.parametrize(
    "data",
    [
        *[VALUES, iter(VALUES), pa.array(VALUES), pa.chunked_array([VALUES[:2], VALUES[2:]])],
        *[pa.table({"value": VALUES}), pl.DataFrame({"value": VALUES})],
        [{"value": value} for value in VALUES],
    ],
    ids=lambda data: type(data).__name__,
)
def test_rows_without_a_key_have_no_keys(data: object) -> None:
    rows = to_rows(data, schema=DEFAULT)
    assert rows.keys is None
    assert rows.payload.column("value").to_pylist() == VALUES


@pytest.mark.parametrize("data", [[], iter([]), TABLE.slice(0, 0), pl.DataFrame({"value": []}), ()])
def test_no_rows_are_rows_too(data: object) -> None:
    if isinstance(data, pl.DataFrame):
        data = data.cast(pl.Binary)
    for schema in (None, DEFAULT):
        rows = to_rows(data, schema=schema)
        assert len(rows) == 0
        assert rows.payload.schema.equals(DEFAULT)
    assert to_rows([], schema=TYPED).payload.schema.equals(TYPED)


@given(st.lists(st.tuples(st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=9)), min_size=1))
def test_any_pairs_survive(pairs: list[tuple[int, bytes]]) -> None:
    assert pairs_of(to_rows(pairs, schema=DEFAULT)) == pairs


def test_views_of_wider_elements_are_bytes() -> None:
    wide = memoryview(bytes(range(12))).cast("i")
    rows = to_rows([wide, b"x"], schema=DEFAULT)
    assert rows.payload.column(0).to_pylist() == [wide.tobytes(), b"x"]


def test_a_queue_of_another_single_column_takes_plain_values() -> None:
    texts = pa.schema([("text", pa.utf8())])
    assert to_rows(["a", None], schema=texts).payload.to_pylist() == [{"text": "a"}, {"text": None}]
    assert to_rows([(1, "a")], schema=texts).payload.to_pylist() == [{"text": "a"}]


def test_types_follow_the_rules_whoever_made_them() -> None:
    frame = pl.DataFrame(
        {
            "city": pl.Series(["Ghent", "Ghent", None], dtype=pl.Categorical),
            "small": pl.Series([1, 2, None], dtype=pl.UInt8),
            "when": pl.Series([0] * 3, dtype=pl.Datetime("ms", "Asia/Tokyo")),
            "tags": pl.Series([["a"], [], None], dtype=pl.List(pl.String)),
        }
    )
    rows = to_rows(frame, schema=None)
    instant = pa.timestamp("us", "UTC")
    assert rows.payload.schema.types == [pa.utf8(), pa.int16(), instant, pa.list_(pa.utf8())]
    assert rows.payload.column("city").to_pylist() == ["Ghent", "Ghent", None]

    table = pd.DataFrame(
        {"city": pd.Categorical(["a", None, "a"]), "n": np.array([1, 2, 3], "uint8")}
    )
    found = to_rows(table, schema=None).payload
    assert found.schema.equals(
        pa.schema([("city", pa.utf8()), ("n", pa.int16())]), check_metadata=True
    )
    assert found.column("city").to_pylist() == ["a", None, "a"]


def test_the_categories_of_polars_are_decoded_at_any_depth() -> None:
    kinds: dict[str, Any] = {
        "one": pl.Categorical,
        "many": pl.List(pl.Categorical),
        "inside": pl.Struct({"a": pl.Categorical}),
        "fixed": pl.Array(pl.Categorical, 1),
        "known": pl.Enum(["x", "y"]),
    }
    values = {"one": "x", "many": ["x", None], "inside": {"a": "y"}, "fixed": ["y"], "known": "y"}
    frame = pl.DataFrame({name: [None, values[name]] for name in kinds}, schema=kinds)
    rows = to_rows(frame.slice(1), schema=None).payload.to_pylist()
    assert rows == [values]
    assert len(to_rows(frame, schema=None)) == 2


def test_invalid_arrow_is_refused_before_it_cannot_be_read_back() -> None:
    offsets = pa.py_buffer(np.array([0, 2], np.int32))
    text = pa.Array.from_buffers(pa.utf8(), 1, [None, offsets, pa.py_buffer(b"\xff\xfe")])
    far = pa.py_buffer(np.array([0, 2**30, 1], np.int32))
    blob = pa.Array.from_buffers(pa.binary(), 2, [None, far, pa.py_buffer(b"a")])
    for array in (text, blob):
        with pytest.raises(SchemaMismatch, match="not valid"):
            to_rows(pa.table({"value": array}), schema=None)


def test_dicts_may_leave_nullable_entries_out() -> None:
    rows = to_rows([{"key": 1, "id": 1}, {"key": 2, "city": "b", "id": 2}], schema=CITIES)
    assert rows.payload.to_pylist() == [{"id": 1, "city": None}, {"id": 2, "city": "b"}]
    only_key = to_rows([{"key": 1}, {"key": 2}], schema=pa.schema([("city", pa.utf8())]))
    assert only_key.payload.to_pylist() == [{"city": None}, {"city": None}]
    only_key = to_rows(pa.table({"key": [1, 2]}), schema=pa.schema([("city", pa.utf8())]))
    assert only_key.payload.to_pylist() == [{"city": None}, {"city": None}]


def test_a_named_key_stays_in_the_payload_if_the_queue_has_it() -> None:
    when = datetime(2024, 1, 1, tzinfo=UTC)
    for data in ([{"ts": when, "n": 1}], pa.table({"ts": [when], "n": [1]})):
        new = to_rows(data, schema=None, key="ts")
        assert new.keys is not None
        assert new.keys.tolist() == [int(when.timestamp()) * 10**9]
        assert new.payload.to_pylist() == [{"ts": when, "n": 1}]
        narrow = to_rows(data, schema=pa.schema([("n", pa.int64())]), key="ts")
        assert narrow.payload.to_pylist() == [{"n": 1}]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (TABLE, "ts"),
        ([{"a": 1}], "ts"),
        (PAIRS, "value"),
        (VALUES, "value"),
        ([{"key": 1, "value": b""}, {"value": b""}], None),
        ([(True, b"")], None),
        ([(1.0, b"")], None),
        ([(None, b"")], None),
        ([(2**63, b"")], None),
        (pa.table({"key": [1.0], "value": [b""]}), None),
        (pd.DataFrame({"key": [1, None], "value": [b"", b""]}), None),
        (pl.DataFrame({"key": [True], "value": [b""]}), None),
    ],
    ids=str,
)
def test_bad_keys_are_refused(data: object, key: str | None) -> None:
    with pytest.raises(InvalidKey):
        to_rows(data, schema=DEFAULT, key=key)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([(1, "text")], "row 0.*encode"),
        ([b"a", "text"], "row 1.*encode"),
        ([b"a", None], "row 1.*NoneType"),
        ([(1, None)], "row 0"),
        ([1, 2], "row 0.*int"),
        ([(1, 5)], "row 0.*int"),
        ([{"value": b"a"}, {"value": None}], "row 1"),
        ([{"value": "text"}], "encode"),
        ([{"value": b"a", "other": 1}], "no column 'other'"),
        ([{"value": b"a", 5: 1}], "no column 5"),
        ([{"other": 1}], "no column 'other'"),
        ([{}], "row 0"),
        (pa.table({"value": ["text"]}), "encode"),
        (pa.table({"key": [1]}), "'value' is missing"),
        (pa.table({"value": [b"a"], "seq": [1]}), "no column 'seq'"),
        (pa.table({"value": [b"a"], "time": [1]}), "no column 'time'"),
        (pd.DataFrame({"value": [b"a", 1]}), "DataFrame"),
        (pl.Series([1]), "but int64 was given"),
    ],
    ids=str,
)
def test_rows_that_do_not_fit_the_default_are_refused(data: object, why: str) -> None:
    with pytest.raises(SchemaMismatch, match=why):
        to_rows(data, schema=DEFAULT)


@pytest.mark.parametrize(
    "data",
    [
        [{"a": None}],
        [{"a": 1}, {"a": "x"}],
        [{"seq": 1}],
        [{5: 1}],
        pa.table({"time": [1]}),
        pa.table({"a": pa.array([np.float16(1)], pa.float16())}),
        [{"key": 1}],
    ],
    ids=str,
)
def test_rows_that_no_queue_can_hold_are_refused(data: object) -> None:
    with pytest.raises(SchemaMismatch):
        to_rows(data, schema=None)


@pytest.mark.parametrize(
    "data",
    [
        *[b"bytes", "text", bytearray(b"x"), 5, None, 1.5, {"value": [b"a"]}, ...],
        *[[(1, b"a", 2)], [(1,)], [(1, b"a"), b"b"], [(1, b"a"), 5], [{"value": b"a"}, 5]],
    ],
    ids=str,
)
def test_what_is_no_batch_is_refused(data: object) -> None:
    with pytest.raises(InvalidInput, match="give a list"):
        to_rows(data, schema=DEFAULT)


def test_plain_values_need_a_single_column() -> None:
    with pytest.raises(SchemaMismatch, match="push dicts or a table"):
        to_rows([b"a"], schema=CITIES)


def test_what_the_caller_gave_is_not_changed() -> None:
    pairs = PAIRS.copy()
    to_rows(pairs, schema=DEFAULT)
    assert pairs == PAIRS
    table = TABLE.to_batches()[0]
    to_rows(table, schema=DEFAULT)
    assert table.column("key").to_pylist() == KEYS


def test_an_item_over_the_limit_is_refused_and_one_at_it_is_not() -> None:
    largest = bytes(64 * MIB)
    assert len(to_rows([b"x", largest], schema=DEFAULT)) == 2
    with pytest.raises(TooLarge, match="row 1 holds 67108865 bytes"):
        to_rows([b"x", largest + b"y"], schema=DEFAULT)


def test_the_size_of_a_typed_item_is_the_sum_over_its_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemill.batch.sizes.ITEM_BYTES_MAX", 300)
    schema = pa.schema(
        [
            ("text", pa.utf8()),
            ("tags", pa.list_(pa.utf8())),
            ("place", pa.struct([("name", pa.binary()), ("at", pa.int64())])),
            ("counts", pa.map_(pa.utf8(), pa.int64())),
        ]
    )
    small: dict[str, Any] = {
        "text": "x" * 50,
        "tags": ["y" * 25, None, "y" * 25],
        "place": {"name": b"z" * 50},
    }
    small["counts"] = [("k" * 50, 1)]
    rows = [small, {}, small, {**small, "tags": ["y"] * 200}]
    assert len(to_rows(rows[:3] * 10, schema=schema)) == 30
    with pytest.raises(TooLarge, match="row 3"):
        to_rows(rows, schema=schema)
    batch = Batch.of(rows[:3] * 10, schema=schema).payload
    assert len(to_rows(batch.slice(1, 5), schema=schema)) == 5


def test_a_push_over_its_limits_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("literals", "tables", "sizes"):
        monkeypatch.setattr(f"tidemill.batch.{module}.BATCH_BYTES_MAX", 100)
    monkeypatch.setattr("tidemill.batch.sizes.ITEM_BYTES_MAX", 50)
    monkeypatch.setattr("tidemill.batch.sizes.BATCH_ROWS_MAX", 5)
    monkeypatch.setattr("tidemill.batch.rows.BATCH_ROWS_MAX", 5)

    def endless() -> Iterator[pa.RecordBatch]:
        while True:
            yield TABLE.to_batches()[0]

    reader = pa.RecordBatchReader.from_batches(TABLE.schema, endless())
    values = pa.table({"value": [bytes(40)] * 3})
    for data in (
        [b"x"] * 6,
        iter(lambda: b"x", 1),
        reader,
        [bytes(40)] * 3,
        values,
        pieces(values),
    ):
        with pytest.raises(TooLarge):
            to_rows(data, schema=DEFAULT)


def test_how_large_a_push_was_is_not_rounded_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.batch.sizes.BATCH_BYTES_MAX", MIB)
    monkeypatch.setattr("tidemill.batch.sizes.ITEM_BYTES_MAX", MIB)
    payload = pa.record_batch({"value": pa.array([bytes(1000)] * 1049)})
    with pytest.raises(TooLarge, match="at most 1 MiB, this one 2 MiB"):
        check_sizes(payload)


def test_a_column_by_itself_is_the_payload_whoever_made_it() -> None:
    wanted = [{"value": b"a"}, {"value": b"b"}]
    for data in (
        pa.array([b"a", b"b"]),
        pa.chunked_array([[b"a"], [b"b"]]),
        pl.Series([b"a", b"b"]),
        pl.Series("named", [b"a", b"b"]),
    ):
        assert to_rows(data, schema=DEFAULT).payload.to_pylist() == wanted


def test_structs_are_the_columns_they_are_made_of_wherever_they_begin() -> None:
    structs = pa.array([{"key": 1, "value": b"a"}, {"key": 2, "value": b"b"}])
    for data in (structs[1:], pa.chunked_array([structs[1:]]), pl.from_arrow(structs)[1:]):
        rows = to_rows(data, schema=DEFAULT)
        assert rows.keys is not None
        assert rows.keys.tolist() == [2]
        assert rows.payload.to_pylist() == [{"value": b"b"}]
