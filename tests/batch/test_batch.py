"""What a queue gives back."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tests.batch.samples import TYPED, typed_rows
from tidemill.batch import DEFAULT, Batch, Item, join_body, to_rows
from tidemill.errors import InvalidInput, SchemaMismatch, TooLarge
from tidemill.files.merge.choice import choose_from
from tidemill.files.merge.run import Run
from tidemill.limits import MIB

PAIRS = [(1, b"a"), (2, b""), (3, b"c")]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def carried(pairs: list[tuple[int, bytes]], seqs: list[int]) -> Batch:
    rows = to_rows(pairs, schema=DEFAULT)
    assert rows.keys is not None
    return Batch(
        join_body(rows.keys, rows.payload, seqs=np.array(seqs), times=np.array(seqs) * 1_000_000)
    )


def test_the_numbers_of_a_frame_become_columns() -> None:
    batch = Batch.of(PAIRS, first_seq=7, time_us=1_000_000)
    assert batch.keys.to_pylist() == [1, 2, 3]
    assert batch.seqs.to_pylist() == [7, 8, 9]
    assert batch.times.type == pa.timestamp("us", "UTC")
    assert batch.times.to_pylist() == [EPOCH.replace(second=1)] * 3
    assert batch.values.to_pylist() == [b"a", b"", b"c"]
    assert batch.schema.equals(DEFAULT)


def test_a_carried_batch_has_its_own_numbers() -> None:
    batch = carried(PAIRS, [5, 9, 2])
    assert batch.seqs.to_pylist() == [5, 9, 2]
    assert [time.second for time in batch.times.to_pylist()] == [5, 9, 2]
    assert batch.schema.equals(DEFAULT)
    assert batch.rows() == PAIRS
    assert batch.slice(1, 1).first == Item(2, b"", 9, EPOCH.replace(second=9))


@pytest.mark.parametrize("batch", [Batch.of(PAIRS, first_seq=5), carried(PAIRS, [5, 6, 7])])
def test_a_batch_is_arrow_to_everybody(batch: Batch) -> None:
    arrow = batch.to_arrow()
    assert arrow.schema.names == ["seq", "key", "time", "value"]
    assert [row["seq"] for row in arrow.to_pylist()] == [5, 6, 7]
    assert pa.table(batch).to_batches()[0].equals(arrow)
    assert pl.DataFrame(batch).select("key", "value").rows() == PAIRS
    frame = batch.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["value"].tolist() == [b"a", b"", b"c"]
    assert Batch(batch.carried()).rows() == PAIRS


def test_first_and_last_are_items() -> None:
    batch = Batch.of(PAIRS, first_seq=7)
    assert batch.first == Item(1, b"a", 7, EPOCH)
    assert batch.last == Item(3, b"c", 9, EPOCH)
    assert list(batch) == batch.rows() == PAIRS


def test_an_empty_batch_is_false_and_has_no_first() -> None:
    for batch in (Batch.empty(DEFAULT), Batch.of(PAIRS).slice(3), Batch.empty(TYPED)):
        assert not batch
        assert len(batch) == 0
        assert batch.first is batch.last is None
        assert batch.rows() == []
        assert batch.to_arrow().num_rows == 0
        assert len(batch.seqs) == len(batch.times) == len(batch.keys) == len(batch.values) == 0
        assert "0 items" in repr(batch)


def test_typed_values_are_dicts_and_a_struct() -> None:
    batch = Batch.of(typed_rows(5), schema=TYPED)
    assert [value["id"] for _, value in batch.rows()] == [0, 1, 2, 3, 4]
    assert pa.types.is_struct(batch.values.type)
    assert batch.values.to_pylist() == [value for _, value in batch.rows()]
    assert batch.last is not None
    assert batch.last.value["id"] == 4


def test_a_batch_shows_no_payload() -> None:
    batch = Batch.of([(1, b"secret"), (5, b"secret")])
    assert repr(batch) == "<Batch of 2 items, keys 1 to 5, columns value>"
    assert repr(batch.slice(1)) == "<Batch of 1 item, keys 5 to 5, columns value>"


def test_batches_join() -> None:
    whole = Batch.of(PAIRS, first_seq=7)
    one, two, three = (whole.slice(n, 1) for n in range(3))
    assert Batch.concat([whole]) is whole
    assert Batch.concat([Batch.empty(DEFAULT), whole]) is whole
    assert len(Batch.concat([Batch.empty(DEFAULT), Batch.empty(DEFAULT)])) == 0
    again = Batch.concat([one, two, three])
    assert again.rows() == PAIRS
    assert again.seqs.to_pylist() == [7, 8, 9]
    for mixed in ([three, one, two], [three, carried(PAIRS, [1, 2, 3])], [one, Batch.of(PAIRS)]):
        found = Batch.concat(mixed)
        assert found.rows() == [pair for batch in mixed for pair in batch.rows()]
        assert found.seqs.to_pylist() == [n for batch in mixed for n in batch.seqs.to_pylist()]
        assert found.times.to_pylist() == [t for batch in mixed for t in batch.times.to_pylist()]
    with pytest.raises(InvalidInput, match=r"Batch\.empty"):
        Batch.concat([])
    with pytest.raises(SchemaMismatch, match="one schema"):
        Batch.concat([Batch.of([(1, b"a")]), Batch.of([(1, {"n": 5})])])


def test_more_than_arrow_can_hold_in_a_column_is_told_to_be_too_much() -> None:
    large = Batch.of([(1, bytes(64 * MIB))])
    with pytest.raises(TooLarge, match="ask for fewer"):
        Batch.concat([large] * 32)
    run = Run(large.carried(), None, None, seq_max=1)
    with pytest.raises(TooLarge, match="ask for fewer"):
        choose_from([(run, 0, 1)] * 32, 32)


def test_a_date_that_python_cannot_hold_says_how_to_get_it() -> None:
    far = pa.array([2**31 - 1], pa.int32()).view(pa.date32())
    batch = Batch.of(pa.table({"key": [1], "day": far}))
    with pytest.raises(InvalidInput, match="to_arrow"):
        batch.rows()
    assert batch.to_arrow().column("day").equals(far)
