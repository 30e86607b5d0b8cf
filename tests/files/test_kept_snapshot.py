"""Snapshots that other processes read in parts, whatever happens to the queue meanwhile."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tidemill as tm
from tidemill.errors import Corrupt, Trimmed
from tidemill.files.merge.frame_reader import DamagedFrame
from tidemill.files.readers.follower import Follower
from tidemill.files.readers.kept_snapshot import Bounds, FramePart, KeptSnapshot, Plan
from tidemill.files.sharing.pin import sweep_readers


def planned(
    folder: Path, *, fork: str | None = None, bounds: Bounds | None = None, kept_s: float = 60
) -> tuple[Plan, KeptSnapshot]:
    with tm.PriorityQueue(folder, read_only=True) as queue:
        view = queue._core.view
        assert isinstance(view, Follower)
        end = queue if fork is None else queue.fork(fork)
        plan = Plan(view, end._cursor, bounds or Bounds())
        return plan, plan.keep(kept_s)


def fail(damage: DamagedFrame) -> None:
    raise damage


def items(kept: KeptSnapshot, *parts: FramePart) -> list[tuple[Any, ...]]:
    batches = [batch for part in parts for batch in kept.read(part, fail)]
    return sorted((row["key"], row["seq"], row["value"]) for b in batches for row in b.to_pylist())


def all_items(end: tm.PriorityQueue | tm.Fork) -> list[tuple[Any, ...]]:
    rows = end.scan().read_all().to_pylist()
    return sorted((row["key"], row["seq"], row["value"]) for row in rows)


@settings(max_examples=25)
@given(st.data())
def test_the_parts_together_are_what_was_left_whatever_comes_later(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("queue")
    keys = st.lists(st.integers(-50, 50), min_size=1, max_size=30)
    with tm.PriorityQueue(folder, bucket=tm.Width(20), segment_bytes=16 * 1024) as queue:
        queue.fork("audit")
        ends: list[tm.PriorityQueue | tm.Fork] = [queue, queue.fork("audit")]
        for number in range(data.draw(st.integers(0, 8))):
            queue.push([(key, b"%d" % number) for key in data.draw(keys)])
            match data.draw(st.sampled_from(["pop", "delete", "keep"])):
                case "pop":
                    ends[data.draw(st.integers(0, 1))].pop(data.draw(st.integers(1, 20)))
                case "delete":
                    low = data.draw(st.integers(-50, 50))
                    ends[data.draw(st.integers(0, 1))].delete(low, low + 10)
        name = data.draw(st.sampled_from([None, "audit"]))
        expected = all_items(queue if name is None else queue.fork(name))
        plan, kept = planned(folder, fork=name)
        queue.push([(0, b"late")])
        queue.fork("audit").remove()
        queue.clear()
    cuts = sorted({0, plan.rows, *data.draw(st.lists(st.integers(0, plan.rows)))})
    parts = [plan.part(low, high) for low, high in pairwise(cuts)]
    assert items(kept, *parts) == expected


def test_it_outlives_the_segments_it_is_of(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024, maintain_in_background=False) as queue:
        for number in range(20):
            queue.push([(number, bytes(2_000))] * 5)
        plan, kept = planned(tmp_path)
        before = len(list((tmp_path / "journal").glob("*.segment")))
        while len(queue):
            queue.pop(10)
        assert len(list((tmp_path / "journal").glob("*.segment"))) < before
        assert len(items(kept, plan.part(0, plan.rows))) == 100


def test_frames_out_of_bounds_are_not_part_of_it(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        for number in range(10):
            queue.push([(number * 10 + key, b"x") for key in range(10)])
        assert len(planned(tmp_path)[0].frames) == 10
        by_key, kept = planned(tmp_path, bounds=Bounds(keys=(15, 34)))
        assert len(by_key.frames) == 3
        assert [key for key, *_ in items(kept, by_key.part(0, by_key.rows))] == list(range(15, 35))
        by_seq, kept = planned(tmp_path, bounds=Bounds(seqs=(95, 200)))
        assert len(by_seq.frames) == 1
        assert [seq for _, seq, _ in items(kept, by_seq.part(0, by_seq.rows))] == list(
            range(95, 101)
        )
        times = queue.scan(columns=["time"]).read_all().column("time").cast(pa.int64()).to_pylist()
        by_time, kept = planned(tmp_path, bounds=Bounds(times_us=(times[-1], times[-1])))
        assert len(by_time.frames) == len({time for time in times if time == times[-1]})
        assert len(items(kept, by_time.part(0, by_time.rows))) == times.count(times[-1])


def test_it_is_swept_when_nobody_has_read_it_for_long_enough(tmp_path: Path) -> None:
    from tidemill.files.disk.filesystem import LocalFileSystem

    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([b"x"])
    plan, kept = planned(tmp_path, kept_s=60)
    assert sweep_readers(LocalFileSystem(), tmp_path) == []
    _, short = planned(tmp_path, kept_s=-1)
    assert sweep_readers(LocalFileSystem(), tmp_path) == [Path(short.folder).name]
    with pytest.raises(Trimmed, match="read the queue anew"):
        short.keep()
    kept.keep()
    assert int((Path(kept.folder) / "lent").read_text()) > time.time() + 50
    assert len(items(kept, plan.part(0, plan.rows))) == 1


def test_a_damaged_frame_is_named_by_the_file_of_the_journal(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b"a" * 100)])
        queue.push([(2, b"b" * 100)])
    plan, kept = planned(tmp_path)
    (segment,) = (tmp_path / "journal").glob("*.segment")
    data = bytearray(segment.read_bytes())
    data[data.index(b"b" * 100)] ^= 1
    segment.write_bytes(data)
    with pytest.raises(Corrupt) as caught:
        items(kept, plan.part(0, plan.rows))
    assert caught.value.path == segment
    left_out: list[DamagedFrame] = []
    batches = list(kept.read(plan.part(0, plan.rows), left_out.append))
    assert [batch.num_rows for batch in batches] == [1]
    assert [damage.entry.rows for damage in left_out] == [1]


def test_one_that_is_swept_while_it_is_read_is_gone_and_not_damaged(tmp_path: Path) -> None:
    """The file may be another segment's by then; nothing of that is shown, or left out."""
    from tidemill.files.disk.filesystem import LocalFileSystem

    with tm.PriorityQueue(
        tmp_path, segment_bytes=32 * 1024, sync="none", maintain_in_background=False
    ) as queue:
        for key in range(5):
            queue.push([(key, b"%04d" % key * 20)] * 20)
        plan, kept = planned(tmp_path, kept_s=-1)
        reading = kept.read(plan.part(0, plan.rows), fail)
        assert next(reading).column("key").to_pylist() == [0] * 20
        assert sweep_readers(LocalFileSystem(), tmp_path) == [Path(kept.folder).name]
        queue.pop(-1)
        for key in range(100, 300):
            queue.push([(key, b"%04d" % key * 20)] * 20)
            queue.pop(20)
        with pytest.raises(Trimmed, match="read the queue anew"):
            list(reading)
