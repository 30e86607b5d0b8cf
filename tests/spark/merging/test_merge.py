"""Many queues become one log in the order of their keys, each item once, whatever dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.services.mariadb import MariaDB
from tests.spark.stopping import run_until_through
from tidemill.errors import InvalidInput, Locked, NotAQueue, SchemaMismatch
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.spark import merge
from tidemill.spark.merging import Merged, job, task
from tidemill.spark.merging.memo import Memory
from tidemill.spark.merging.queues import OwnedQueues

pytestmark = pytest.mark.slow

NAMED = pa.schema([("n", pa.int64())])


def rows_of(log: Path | str) -> list[dict[str, Any]]:
    with tm.Log(str(log)) as opened:
        end = opened.ends().next
        rows: list[dict[str, Any]] = []
        while len(rows) < end - 1:
            rows += opened.read(start=len(rows) + 1, rows_max=100_000).to_arrow().to_pylist()
    return rows


def filled(path: Path, count: int, *, seed: int, keys: int = 1000, batch: int = 500) -> Path:
    """A queue with overlapping frames; the numbers tell the queue and the order of arrival."""
    random = np.random.default_rng(seed)
    with tm.PriorityQueue(path, schema=NAMED, sync="none") as queue:
        for start in range(0, count, batch):
            stop = min(start + batch, count)
            # As they arrive, equal keys keep their order: numbers by the order of the push.
            key = np.sort(random.integers(-keys, keys, stop - start))
            number = np.arange(start, stop) + seed * 10**6
            queue.push(pa.table({"key": key, "n": number}))
    return path


def left(path: Path) -> int:
    with tm.PriorityQueue(path) as queue:
        return len(queue)


def expected(paths: list[Path]) -> list[tuple[int, int]]:
    """What the queues hold, by key, then by queue and arrival: the dumb way."""
    found = []
    for order, path in enumerate(paths):
        with tm.PriorityQueue(path, read_only=True) as queue:
            batch = queue.peek(10**6)
            rows = zip(batch.keys.to_pylist(), batch.seqs.to_pylist(), strict=True)
            numbers = batch.to_arrow().column("n").to_pylist()
            found += [
                (key, order, seq, number) for (key, seq), number in zip(rows, numbers, strict=True)
            ]
    return [(key, number) for key, _, _, number in sorted(found)]


def merged_rows(log: Path | str) -> list[tuple[int, int]]:
    return [(row["item_key"], row["n"]) for row in rows_of(log)]


def test_the_log_has_every_item_in_the_order_of_the_keys(
    spark: SparkSession, tmp_path: Path
) -> None:
    paths = [filled(tmp_path / f"edge-{seed}", 20_000, seed=seed) for seed in range(3)]
    with tm.PriorityQueue(paths[1]) as queue:
        queue.pop(1_000)
        queue.delete(100, 120)
        queue.fork("audit")
    wanted = expected(paths)
    shown: list[tuple[int, float]] = []
    found = merge(
        spark, paths, tmp_path / "log", on_progress=lambda rows, share: shown.append((rows, share))
    )
    assert found == Merged(len(wanted), 1, len(wanted), 1)
    assert merged_rows(tmp_path / "log") == wanted
    assert shown == [(len(wanted), 1.0)]
    assert [left(path) for path in paths] == [0, 0, 0]
    with tm.PriorityQueue(paths[1]) as queue:
        # Another end is nobody's business.
        assert len(queue.fork("audit")) > 0
        assert not list((paths[1] / "readers").iterdir())


def test_many_ranges_and_rounds_make_the_same_log(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [filled(tmp_path / f"edge-{seed}", 20_000, seed=seed) for seed in range(2)]
    wanted = expected(paths)
    monkeypatch.setattr(job, "MERGE_RANGE_BYTES", 100_000)
    monkeypatch.setattr(job, "MERGE_ROUND_BYTES", 300_000)
    found = merge(spark, paths, tmp_path / "log")
    assert found.rows == len(wanted)
    assert found.transactions > 2
    assert merged_rows(tmp_path / "log") == wanted
    # What came since is merged by the next one, and comes behind.
    filled(paths[0], 1_000, seed=7)
    more = expected(paths)
    assert merge(spark, paths, tmp_path / "log").first == len(wanted) + 1
    assert merged_rows(tmp_path / "log") == wanted + more
    assert merge(spark, paths, tmp_path / "log") == Merged(0, 1, 0, 0)


def test_a_round_that_turns_out_too_large_is_halved(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [filled(tmp_path / "edge", 20_000, seed=1)]
    wanted = expected(paths)
    monkeypatch.setattr(job, "MERGE_RANGE_BYTES", 100_000)
    monkeypatch.setattr(job, "TRANSACTION_BYTES_MAX", 250_000)
    found = merge(spark, paths, tmp_path / "log")
    assert found.transactions > 1
    assert merged_rows(tmp_path / "log") == wanted


@pytest.mark.parametrize("keys", [1, 2, 1000])
def test_what_memory_has_no_room_for_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: int
) -> None:
    """By key, then by queue, then by arrival: also when all keys are one."""
    paths = [filled(tmp_path / f"edge-{seed}", 5_000, seed=seed, keys=keys) for seed in range(2)]
    if keys == 1:
        for path in paths:
            with tm.PriorityQueue(path) as queue:
                queue.delete(-1, -1)
    wanted = expected(paths)
    monkeypatch.setattr(task, "MERGE_MEMORY_BYTES", 20_000)
    queues = OwnedQueues(paths)
    try:
        queues.look([last for _, last in queues.last_arrivals])
        columns = job._columns(queues.columns(), "item_key", None)
        (keys_all, _), *_ = queues.ranges(None, 1 << 30)
        one: Any = task.MergeTask(keys_all, queues.parts(keys_all), columns, None, "")  # type: ignore[arg-type]
        batches = list(one.rows())
    finally:
        queues.close()
    found = pa.Table.from_batches(batches)
    assert list(zip(found["item_key"].to_pylist(), found["n"].to_pylist(), strict=True)) == wanted
    assert max(batch.nbytes for batch in batches) < 40_000


def test_queues_with_other_columns_share_a_log(spark: SparkSession, tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path / "a", schema=pa.schema([("n", pa.int64())])) as queue:
        queue.push([(2, {"n": 2}), (-(2**63), {"n": 0})])
    wider = pa.schema([("n", pa.int64()), ("tags", pa.list_(pa.string()))])
    with tm.PriorityQueue(tmp_path / "b", schema=wider) as queue:
        queue.push([(2**63 - 1, {"n": 9, "tags": ["x"]}), (2, {"n": 3, "tags": None})])
    merge(spark, [tmp_path / "a", tmp_path / "b"], tmp_path / "log", key=None, origin="device")
    assert rows_of(tmp_path / "log") == [
        {"seq": seq, "time": row["time"], "n": n, "tags": tags, "device": device}
        for (seq, n, tags, device), row in zip(
            [(1, 0, None, "a"), (2, 2, None, "a"), (3, 3, None, "b"), (4, 9, ["x"], "b")],
            rows_of(tmp_path / "log"),
            strict=True,
        )
    ]


def test_a_log_on_a_server_is_merged_into(
    spark: SparkSession, tmp_path: Path, mariadb: MariaDB, database: str
) -> None:
    paths = [filled(tmp_path / f"edge-{seed}", 2_000, seed=seed) for seed in range(2)]
    wanted = expected(paths)
    url = mariadb.url(database, "merged")
    assert merge(spark, paths, url).rows == 4_000
    assert merged_rows(url) == wanted
    assert [left(path) for path in paths] == [0, 0]


STEPS: list[tuple[type, str]] = [
    (Memory, "write"),
    (OwnedQueues, "look"),
    (job._Driver, "_stage"),
    (FileLogStaging, "commit"),
    (OwnedQueues, "give_up"),
]


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(("owner", "name"), STEPS)
def test_a_merge_that_ends_anywhere_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, owner: type, name: str, before: bool
) -> None:
    paths = [filled(tmp_path / f"edge-{seed}", 3_000, seed=seed) for seed in range(2)]
    wanted = expected(paths)

    def small_rounds(patch: pytest.MonkeyPatch) -> None:
        patch.setattr(job, "MERGE_RANGE_BYTES", 25_000)
        patch.setattr(job, "MERGE_ROUND_BYTES", 25_000)

    def work() -> None:
        merge(spark, paths, tmp_path / "log")

    assert run_until_through(work, owner, name, before=before, settings=small_rounds)
    assert merged_rows(tmp_path / "log") == wanted
    assert [left(path) for path in paths] == [0, 0]
    assert not list((tmp_path / "log" / "staging").glob("merge/*"))


def test_what_cannot_be_merged_is_refused_and_leaves_no_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    edge, log = filled(tmp_path / "edge", 10, seed=1), tmp_path / "log"
    with tm.PriorityQueue(tmp_path / "texts", schema=pa.schema([("n", pa.string())])) as queue:
        queue.push([(1, {"n": "one"})])
    with tm.Log(str(tmp_path / "other")) as other, other.publisher() as out:
        out.send([b"one"])
    refusals: list[tuple[list[Path], dict[str, Any], type[Exception], str]] = [
        ([], {}, InvalidInput, "there is nothing to merge"),
        ([edge, edge], {}, InvalidInput, "is named twice"),
        ([edge, tmp_path / "nothing"], {}, NotAQueue, "nothing"),
        ([edge, tmp_path / "other"], {}, NotAQueue, "other"),
        ([edge, tmp_path / "texts"], {}, SchemaMismatch, "one log cannot hold both"),
        ([edge], {"key": "n"}, InvalidInput, "have a column 'n' of their own"),
        ([edge], {"key": "seq"}, SchemaMismatch, "seq"),
        ([edge], {"name": "a/b"}, InvalidInput, "a/b"),
    ]
    for paths, options, kind, words in refusals:
        with pytest.raises(kind, match=words):
            merge(spark, paths, log, **options)
        assert not log.exists()
    with tm.PriorityQueue(edge), pytest.raises(Locked, match="edge"):
        merge(spark, [edge], log)
    assert not log.exists()
    with pytest.raises(SchemaMismatch, match="other"):
        merge(spark, [tmp_path / "texts"], tmp_path / "other", key=None)
    assert left(edge) == 10
