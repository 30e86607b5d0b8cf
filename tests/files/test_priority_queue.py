"""What comes out of a queue, and in which order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.files.queue.pushes import PushRequest, push_all
from tidemill.files.state.bucket import BucketFunction
from tidemill.limits import INT64_MAX, INT64_MIN


def test_items_come_out_by_ascending_key_across_overlapping_batches(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(5, b"e"), (1, b"a"), (9, b"i")])
        queue.push([(4, b"d"), (2, b"b"), (8, b"h")])
        queue.push([(3, b"c"), (7, b"g"), (6, b"f")])
        assert queue.pop(4).rows() == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]
        assert queue.pop(-1).values.to_pylist() == [b"e", b"f", b"g", b"h", b"i"]


def test_items_come_out_by_ascending_key_across_buckets(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(10)) as queue:
        queue.push([(25, b"c"), (5, b"a"), (-5, b"n")])
        queue.push([(15, b"b"), (-15, b"m"), (26, b"d")])
        keys = queue.pop(-1).keys.to_pylist()
        assert keys == [-15, -5, 5, 15, 25, 26]


def test_a_smaller_key_pushed_between_pops_comes_out_next(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(10)) as queue:
        queue.push([(key, b"") for key in range(0, 100, 10)])
        assert queue.pop(3).keys.to_pylist() == [0, 10, 20]
        queue.push([(5, b""), (35, b"")])
        assert queue.pop(4).keys.to_pylist() == [5, 30, 35, 40]


def test_equal_keys_come_out_in_the_order_they_were_pushed(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(7, b"1"), (7, b"2"), (3, b"0")])
        queue.push([(7, b"3")])
        queue.push([(9, b"6"), (7, b"4"), (7, b"5")])
        assert b"".join(queue.pop(-1).values.to_pylist()) == b"0123456"


def test_every_int64_is_a_key(tmp_path: Path) -> None:
    keys = [INT64_MAX, INT64_MIN, 0, -1, 1, INT64_MAX - 1, INT64_MIN + 1, 0, INT64_MIN, INT64_MAX]
    functions: list[BucketFunction] = [tm.Shift(), tm.Shift(0), tm.Shift(63), tm.Width(INT64_MAX)]
    for number, bucket in enumerate(functions):
        with tm.PriorityQueue(tmp_path / str(number), bucket=bucket) as queue:
            queue.push([(key, b"x") for key in keys])
            assert queue.pop(4).keys.to_pylist() == sorted(keys)[:4]
            assert queue.pop(-1).keys.to_pylist() == sorted(keys)[4:]


def test_empty_and_duplicate_payloads_survive(tmp_path: Path) -> None:
    rows = [(1, b""), (1, b""), (1, b"x"), (1, b"x"), (2, b"")]
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push(rows)
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(-1).rows() == rows


def test_an_item_without_a_key_gets_the_time_of_the_push(tmp_path: Path) -> None:
    class Noon:
        def time_ns(self) -> int:
            return 1_700_000_000_000_000_000

        def monotonic_s(self) -> float:
            return 0.0

        def wait(self, *_: object) -> bool:
            return False

    with tm.PriorityQueue(tmp_path, clock=Noon()) as queue:
        queue.push([b"a", b"b"])
        batch = queue.pop(2)
        assert batch.keys.to_pylist() == [1_700_000_000_000_000_000] * 2
        assert batch.first is not None
        assert batch.first.time.timestamp() == 1_700_000_000


def test_fewer_items_than_asked_for_are_all_of_them(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(5).rows() == []
        queue.push([(1, b"a")])
        assert queue.pop(0).rows() == []
        assert queue.pop(5).rows() == [(1, b"a")]


def test_peek_takes_nothing(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(2)) as queue:
        queue.push([(key, b"") for key in range(10)])
        assert queue.peek(7).keys.to_pylist() == list(range(7))
        assert queue.peek(-1).keys.to_pylist() == list(range(10))
        assert len(queue) == 10


def test_receipts_number_items_in_the_order_they_will_come_out(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.push([(3, b"c"), (1, b"a")]) == tm.Receipt(1, 2, 2, "synced")
        assert queue.push([(2, b"b")]) == tm.Receipt(3, 3, 1, "synced")
        assert queue.push([]).count == 0
        assert queue.pop(3).seqs.to_pylist() == [1, 3, 2]


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    for last in (2, 4, 6):
        with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024) as queue:
            assert queue.push([(1, b"x"), (2, b"y")]).last == last
            queue.clear()


def test_everything_is_there_again_after_closing_and_opening(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, str(key).encode()) for key in range(100)])
        queue.pop(30)
        queue.delete(50, 59)
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 60
        expected = [*range(30, 50), *range(60, 100)]
        assert queue.pop(-1).rows() == [(key, str(key).encode()) for key in expected]
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 0


def test_arrow_pandas_and_polars_go_in_and_come_out(tmp_path: Path) -> None:
    schema = pa.schema([("city", pa.string()), ("size", pa.int64())])
    columns = {"key": [3, 1], "city": ["Lyon", "Oslo"], "size": [5, 7]}
    with tm.PriorityQueue(tmp_path, schema=schema) as queue:
        queue.push(pa.table(columns))
        queue.push(pd.DataFrame(columns))
        queue.push(pl.DataFrame(columns))
        frame = queue.peek(6).to_pandas()
        assert list(frame["key"]) == [1, 1, 1, 3, 3, 3]
        assert list(frame["city"]) == ["Oslo"] * 3 + ["Lyon"] * 3
        assert pl.DataFrame(queue.pop(6))["size"].to_list() == [7, 7, 7, 5, 5, 5]


def test_what_was_popped_can_be_pushed_to_another_queue_as_it_is(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path / "a") as first, tm.PriorityQueue(tmp_path / "b") as second:
        first.push([(2, b"b"), (1, b"a")])
        second.push(first.pop(2))
        assert second.pop(2).rows() == [(1, b"a"), (2, b"b")]


def test_a_closed_queue_raises_and_closing_twice_does_no_harm(tmp_path: Path) -> None:
    queue = tm.PriorityQueue(tmp_path)
    fork = queue.fork("a")
    queue.close()
    queue.close()
    for use in (
        lambda: queue.push([b"x"]),
        queue.pop,
        queue.peek,
        lambda: queue.delete(0, 1),
        queue.clear,
        lambda: queue.fork("b"),
        queue.forks,
        queue.sync,
        queue.stats,
        lambda: len(queue),
        lambda: queue.read().__enter__(),
        fork.pop,
        fork.remove,
    ):
        with pytest.raises(tm.Closed):
            use()
    assert "closed" in repr(queue)


def test_an_empty_queue_is_still_true(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue
        assert len(queue) == 0
        assert "0 items" in repr(queue)
        assert queue.path == tmp_path


def test_clear_empties_one_end_and_says_how_much_it_had(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        fork = queue.fork("other")
        queue.push([(1, b"a"), (2, b"b")])
        assert queue.clear() == 2
        assert queue.clear() == 0
        assert (len(queue), len(fork)) == (0, 2)
        queue.push([(0, b"c")])
        assert queue.pop(9).rows() == [(0, b"c")]


def test_stats_tell_what_there_is(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(10)) as queue:
        queue.fork("audit")
        queue.push([(5, b"a"), (15, b"b")])
        queue.pop()
        stats = queue.stats()
        assert (stats.items, stats.forks, stats.next_seq) == (1, {"audit": 2}, 3)
        assert (stats.buckets, stats.segments, stats.cuts) == (2, 1, 1)
        assert stats.disk_bytes > 0
        assert (stats.quarantined, stats.dropped) == (0, 0)


@pytest.mark.parametrize(
    "schema", [pa.schema([("value", pa.binary())]), pa.schema([("value", pa.list_(pa.int32()))])]
)
def test_single_items_of_all_forms_can_wait_together(tmp_path: Path, schema: pa.Schema) -> None:
    """They share a frame, whatever each says of the nulls that its columns could hold."""
    flat = pa.types.is_binary(schema.field("value").type)
    values: list[Any] = [b"a", b"b", b"c", b"d"] if flat else [[1], [2], [3], [4]]
    strict = pa.schema([pa.field("key", pa.int64(), nullable=False), schema.field("value")])
    with tm.PriorityQueue(tmp_path, schema=schema) as queue:
        forms = [
            pa.record_batch([[4], pa.array(values[:1], schema.types[0])], names=["key", "value"]),
            [(3, values[1])] if flat else [{"key": 3, "value": values[1]}],
            pa.RecordBatch.from_pylist([{"key": 2, "value": values[2]}], schema=strict),
            pa.table({"key": [1], "value": pa.array(values[3:], schema.types[0])}),
        ]
        outcomes = push_all(queue._core, [PushRequest(form, None) for form in forms])
        assert [type(outcome) for outcome in outcomes] == [tm.Receipt] * 4
        found = queue.pop(4).to_arrow()
        assert found.column("key").to_pylist() == [1, 2, 3, 4]
        assert found.column("value").to_pylist() == values[::-1]
