"""Pairs that are made ahead are those that would have been made one by one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.batch import Batch, Pairs
from tidemill.batch.pairs import FEW_ROWS

ROWS = 200


def _body(values: pa.Array, *, carried: bool = False) -> pa.RecordBatch:
    columns = {"key": pa.array(range(len(values)))}
    if carried:
        columns["seq"] = pa.array(range(1, len(values) + 1))
        columns["time"] = pa.array([0] * len(values), pa.timestamp("us", tz="UTC"))
    return pa.record_batch({**columns, "value": values})


def _part(body: pa.RecordBatch, pairs: Pairs, start: int, stop: int) -> Batch:
    carried = "seq" in body.schema.names
    numbers = (None, None) if carried else (start + 1, 0)
    return Batch(body, *numbers, part=(start, stop), pairs=pairs)


@pytest.mark.parametrize("carried", [False, True])
@pytest.mark.parametrize("count", [1, 3, FEW_ROWS, FEW_ROWS + 1, ROWS])
def test_parts_of_a_body_are_its_rows(count: int, carried: bool) -> None:
    body = _body(pa.array([b"%d" % number for number in range(ROWS)]), carried=carried)
    pairs = Pairs(body, 3 if carried else 1)
    found: list[object] = []
    for start in range(0, ROWS, count):
        part = _part(body, pairs, start, min(start + count, ROWS))
        assert part.rows() == part.rows() == part.slice(0).rows()
        assert [key for key, _ in part.rows()] == part.keys.to_pylist()
        assert part.seqs.to_pylist() == [key + 1 for key, _ in part.rows()]
        found += part.rows()
    assert found == [(number, b"%d" % number) for number in range(ROWS)]


def test_parts_may_be_asked_for_in_any_order() -> None:
    body = _body(pa.array([b"%d" % number for number in range(ROWS)]))
    pairs = Pairs(body, 1)
    for start in (150, 3, 151, 70, 2, 199, 0):
        assert _part(body, pairs, start, start + 1).rows() == [(start, b"%d" % start)]


def test_nulls_and_empty_values_survive() -> None:
    body = _body(pa.array([None, b"", b"x"], pa.binary()))
    pairs = Pairs(body, 1)
    found = [_part(body, pairs, at, at + 1).rows()[0][1] for at in range(3)]
    assert found == [None, b"", b"x"]


def test_what_is_handed_out_is_the_callers_own() -> None:
    body = _body(pa.array([b"a", b"b", b"c"]))
    pairs = Pairs(body, 1)
    part = _part(body, pairs, 0, 1)
    part.rows().clear()
    assert part.rows() == [(0, b"a")]


def test_a_dict_is_never_handed_out_twice(tmp_path: Path) -> None:
    cities = pa.schema([("city", pa.string())])
    with tm.PriorityQueue(tmp_path, schema=cities) as queue:
        queue.push([(key, {"city": f"{key}"}) for key in range(5)])
        batch = queue.pop(2)
        batch.rows()[0][1]["city"] = "another"
        assert batch.rows() == [(0, {"city": "0"}), (1, {"city": "1"})]


def test_large_values_are_not_made_ahead() -> None:
    body = _body(pa.array([bytes(20_000) for _ in range(5)]))
    assert Pairs(body, 1).part(0, 1) is None
    part = _part(body, Pairs(body, 1), 1, 2)
    assert part.rows() == [(1, bytes(20_000))]


def test_a_batch_of_nothing_has_no_pairs() -> None:
    body = _body(pa.array([b"a"]))
    assert _part(body, Pairs(body, 1), 1, 1).rows() == []
