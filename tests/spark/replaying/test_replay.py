"""Rows are sent once more: those that were asked for, in order, each once, whatever dies."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tests.services.mariadb import MariaDB
from tests.spark.stopping import Crash, crash_at, run_until_through
from tidemill.errors import Fenced, InvalidInput, InvalidKey, NotAQueue, Trimmed
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.archiver import Archiver
from tidemill.log.archive.place import open_objects
from tidemill.log.archive.segment_writer import Sizes
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.spark import native_scan, replay
from tidemill.spark.address import find
from tidemill.spark.replaying import Replayed, job
from tidemill.spark.replaying.choice import Choice

pytestmark = pytest.mark.slow

NUMBERS = pa.schema([("n", pa.int64()), ("text", pa.string())])


def rows(start: int, stop: int) -> pa.Table:
    numbers = np.arange(start, stop)
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers]})


def filled(path: Path, count: int = 2_000, *, archived: int = 0, segment_rows: int = 100) -> Path:
    """A log of numbered rows, the first of which lie in many segments of an archive."""
    with tm.Log(str(path), schema=NUMBERS) as log:
        with log.publisher() as out:
            for start in range(0, count, 50):
                out.send(rows(start, min(start + 50, count)))
        if archived:
            sizes = Sizes(segment_rows=segment_rows, group_rows=30, compacted_segments=1000)
            objects = open_objects(f"{path}-archive")
            Archiver(log._store.hot, Archive(objects), sizes).run(archived + 1)
    return path


def numbers(log: Path | str) -> list[int]:
    with tm.Log(str(log)) as opened:
        return opened.read(rows_max=10**6).to_arrow().column("n").to_pylist()


def test_columns_may_have_any_name(spark: SparkSession, tmp_path: Path) -> None:
    names = ["a.b", "x`y", "seq uence", "ü"]
    table = pa.table({name: [1, 2] for name in names})
    with tm.Log(tmp_path / "odd", schema=table.schema) as log, log.publisher() as out:
        out.send(table)
    replay(spark, tmp_path / "odd", tmp_path / "again")
    with tm.Log(tmp_path / "again") as log:
        assert log.read(rows_max=10).to_arrow().select(names).to_pylist() == table.to_pylist()


@pytest.mark.parametrize("archived", [0, 1_500])
def test_a_range_and_a_filter_choose_what_is_replayed_in_order(
    spark: SparkSession, tmp_path: Path, archived: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_scan, "SMALL_BYTES", 0)
    log = filled(tmp_path / "log", archived=archived)
    shown: list[tuple[int, float]] = []
    done = replay(
        spark,
        log,
        tmp_path / "again",
        seqs=(201, 1_800),
        where="n % 3 = 0 and text like 'row %'",
        on_progress=lambda done, share: shown.append((done, share)),
    )
    wanted = [n for n in range(200, 1_800) if n % 3 == 0]
    assert numbers(tmp_path / "again") == wanted
    assert done == Replayed(len(wanted), 1, len(wanted), 1, 1_800)
    assert shown == [(len(wanted), 1.0)]
    # The same again is nothing; another name is another replay.
    bounds: dict[str, Any] = {"seqs": (201, 1_800), "where": "n % 3 = 0 and text like 'row %'"}
    assert replay(spark, log, tmp_path / "again", **bounds) == Replayed(0, 1, 0, 0, 1_800)
    assert replay(spark, log, tmp_path / "again", **bounds, name="more").rows == len(wanted)


def test_only_files_with_rows_that_are_wanted_are_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_scan, "SMALL_BYTES", 0)
    log = filled(tmp_path / "log", archived=1_500)
    for archive in (log, Path(f"{log}-archive")):
        choice = Choice(source=find(str(archive)), seqs=(250, 320))
        found = choice.rows(spark, *choice.range(None))
        assert len(found.inputFiles()) == 2
        assert found.count() == 71


def test_times_choose_as_numbers_do(spark: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 500)
    with tm.Log(str(log)) as opened:
        times = opened.read(rows_max=500).to_arrow().column("time").to_pylist()
    since, until = times[100], times[399]
    replay(spark, log, tmp_path / "again", times=(since, until))
    assert numbers(tmp_path / "again") == [n for n in range(500) if since <= times[n] <= until]
    late = datetime.now(UTC) + timedelta(days=1)
    assert replay(spark, log, tmp_path / "none", times=(late, None)).rows == 0
    assert numbers(tmp_path / "none") == []


def test_what_has_come_since_is_taken_by_the_next_call(spark: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 100)
    assert replay(spark, log, tmp_path / "again").rows == 100
    with tm.Log(str(log)) as opened, opened.publisher() as out:
        out.send(rows(100, 150))
    assert replay(spark, log, tmp_path / "again") == Replayed(50, 101, 150, 1, 150)
    assert numbers(tmp_path / "again") == [*range(150)]


def test_a_log_becomes_a_queue_and_a_queue_a_log(spark: SparkSession, tmp_path: Path) -> None:
    log = filled(tmp_path / "log", 300)
    done = replay(spark, log, tmp_path / "queue", kind="queue", key="n", where="n >= 100")
    assert done.rows == 200
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        assert queue.peek(1_000).keys.to_pylist() == [*range(100, 300)]
        queue.pop(50)
        queue.push(pa.table({"key": [7], "n": [7], "text": ["late"]}))
    back = replay(spark, tmp_path / "queue", tmp_path / "back", keys=(None, 199), key="was")
    assert back.rows == 51
    with tm.Log(str(tmp_path / "back")) as opened:
        table = opened.read(rows_max=1_000).to_arrow()
    # In the order of arrival, what was popped left out.
    assert table.column("was").to_pylist() == [*range(150, 200), 7]
    assert table.column("n").to_pylist() == [*range(150, 200), 7]
    again = replay(spark, tmp_path / "queue", tmp_path / "other", kind="queue")
    assert again.rows == 151


def test_a_log_on_a_server_is_replayed_into(
    spark: SparkSession, tmp_path: Path, mariadb: MariaDB, database: str
) -> None:
    log, url = filled(tmp_path / "log", 200), mariadb.url(database, "again")
    assert replay(spark, log, url, where="n < 150").rows == 150
    assert replay(spark, log, url, where="n < 150").rows == 0
    assert numbers(url) == [*range(150)]
    assert replay(spark, url, tmp_path / "back", seqs=(11, 20)).rows == 10
    assert numbers(tmp_path / "back") == [*range(10, 20)]


def small_rounds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(job, "REPLAY_ROUND_ROWS", 150)


@pytest.mark.parametrize(
    ("owner", "name", "kind", "before"),
    [
        (job._Driver, "_stage", "log", False),
        (FileLogStaging, "commit", "log", True),
        (FileLogStaging, "commit", "log", False),
        (QueueStaging, "commit", "queue", False),
    ],
)
def test_a_replay_that_ends_anywhere_is_finished_by_the_next(
    spark: SparkSession, tmp_path: Path, owner: type, name: str, kind: str, before: bool
) -> None:
    log, target = filled(tmp_path / "log", 600), tmp_path / "target"

    def work() -> None:
        replay(
            spark, log, target, where="n % 2 = 0", kind=kind, key="n" if kind == "queue" else None
        )

    assert run_until_through(work, owner, name, before=before, settings=small_rounds) > 1
    wanted = [*range(0, 600, 2)]
    if kind == "log":
        assert numbers(target) == wanted
    else:
        with tm.PriorityQueue(target) as queue:
            assert queue.peek(1_000).keys.to_pylist() == wanted
    assert not list((target / "staging").glob("*/*"))


@pytest.mark.parametrize("steps", [3, 6])
def test_of_two_drivers_of_one_replay_the_slower_changes_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Though they divide the rows in other ways, so that their numbers differ."""
    log, target = filled(tmp_path / "log", 600), tmp_path / "target"
    real, calls = job._Driver._stage, iter(range(100))

    def stage(driver: Any, start: int, end: int) -> Any:
        if next(calls) == 0:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(job, "REPLAY_ROUND_ROWS", 100)
                crash_at(patch, FileLogStaging, "commit", at=steps - 1, before=False)
                with pytest.raises(Crash):
                    replay(spark, log, target)
        return real(driver, start, end)

    monkeypatch.setattr(job._Driver, "_stage", stage)
    if steps == 6:
        assert replay(spark, log, target).rows == 0  # The other was through already.
    else:
        with pytest.raises(Fenced, match=r"another process runs the same replay .* is at row 300"):
            replay(spark, log, target)
        assert numbers(target) == [*range(300)]
        assert replay(spark, log, target).rows == 300
    assert numbers(target) == [*range(600)]


def test_a_round_that_turns_out_too_large_is_halved(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "TRANSACTION_BYTES_MAX", 5_000)
    log = filled(tmp_path / "log", 1_000)
    assert replay(spark, log, tmp_path / "again").transactions > 2
    assert numbers(tmp_path / "again") == [*range(1_000)]


def test_rows_that_were_trimmed_before_they_were_replayed_are_missed(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = filled(tmp_path / "log", 500)
    replay(spark, log, tmp_path / "again", where="n > 5")
    with tm.Log(str(log)) as opened:
        with opened.publisher() as out:
            out.send(rows(500, 600))
        opened.trim(before=551)
    with pytest.raises(
        Trimmed, match=r"rows 501 to 550 of .* were trimmed before they were replayed"
    ):
        replay(spark, log, tmp_path / "again", where="n > 5")
    with pytest.raises(Trimmed, match="begin at 551"):
        replay(spark, log, tmp_path / "other", seqs=(7, None))
    assert replay(spark, log, tmp_path / "other").rows == 50


def test_what_cannot_be_replayed_is_refused_and_leaves_no_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    log, queue = filled(tmp_path / "log", 10), tmp_path / "queue"
    with tm.PriorityQueue(queue, schema=NUMBERS) as opened:
        opened.push(pa.table({"key": [1], "n": [1], "text": ["one"]}))
    new = tmp_path / "new"
    naive = datetime(2026, 1, 1)  # noqa: DTZ001
    refusals: list[tuple[Path, dict[str, Any], type[Exception], str]] = [
        (tmp_path / "nothing", {}, NotAQueue, "nothing"),
        (
            log,
            {"where": "m > 1"},
            InvalidInput,
            "no column 'm'; the columns are seq, time, n, text",
        ),
        (log, {"where": "n >"}, InvalidInput, "cannot be filtered by 'n >'"),
        (log, {"where": "n + 1"}, InvalidInput, "cannot be filtered by .*; the columns are"),
        (log, {"where": "count(n) > 1"}, InvalidInput, "cannot be filtered by"),
        (log, {"seqs": (5, 2)}, InvalidInput, "the least number is 5, the greatest 2"),
        (log, {"keys": (1, 2)}, InvalidInput, "is a log, whose rows have no keys"),
        (log, {"times": (naive, None)}, InvalidInput, "has no zone"),
        (log, {"kind": "ring"}, InvalidInput, "kind is log or queue, not 'ring'"),
        (log, {"kind": "queue"}, InvalidKey, "name the column to order by, one of n, text"),
        (log, {"kind": "queue", "key": "m"}, InvalidKey, "no column 'm' to order by"),
        (log, {"kind": "queue", "key": "text"}, InvalidKey, "keys are integers"),
        (log, {"key": "n"}, InvalidInput, "a log has no keys"),
        (log, {"name": "a/b"}, InvalidInput, "a/b"),
        (queue, {"key": "n"}, InvalidInput, "there is a column 'n' already"),
    ]
    for source, options, kind, words in refusals:
        with pytest.raises(kind, match=words):
            replay(spark, source, new, **options)
        assert not new.exists(), options
    with pytest.raises(InvalidInput, match="is a ring"):
        replay(spark, "redis://localhost/alerts", new)
    with pytest.raises(InvalidInput, match="into itself for ever"):
        replay(spark, log, log)
    assert replay(spark, log, log, seqs=(1, 3)).first == 11
    with pytest.raises(InvalidInput, match="holds a log, not a queue"):
        replay(spark, queue, log, kind="queue")
