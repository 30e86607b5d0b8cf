"""How far a pipeline is, read from files as Spark writes them; no Spark runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.spark.pipelines.numbers import send
from tests.spark.tracing import MARK, synced
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging.transaction import Staging, Transaction
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.spark import Pipeline, Source, pipeline
from tidemill.spark.pipelines.belonging import check_sink, check_sources
from tidemill.spark.pipelines.offsets_log import done_batches, last_begun, state_bytes
from tidemill.spark.pipelines.state import State
from tidemill.spark.pipelines.status import status

BEGIN_S = 1_800_000_000


def note(checkpoint: Path, number: int, *offsets: str, done: bool = True) -> None:
    """A batch of a query, ten seconds behind the one before."""
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True, exist_ok=True)
    entry = "\n".join(["v1", '{"batchTimestampMs":0}', *offsets])
    (checkpoint / "offsets" / str(number)).write_text(entry)
    (checkpoint / "offsets" / f".{number}.crc").touch()
    if done:
        commit = checkpoint / "commits" / str(number)
        commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
        os.utime(commit, (BEGIN_S + 10 * number,) * 2)


def both(folder: Path, **sources: Any) -> Pipeline:
    @pipeline(source=sources or {"left": folder / "left"}, sink=folder / "out", name="both")
    def function(left: Any, right: Any = None) -> Any:
        return left

    return function


def test_lag_and_rate_come_from_the_batches_that_are_done(tmp_path: Path) -> None:
    send(tmp_path / "left", range(100))
    made = both(tmp_path)
    checkpoint = tmp_path / "out.state" / "both" / "output"
    (before,) = status(made).sinks
    assert (before.last_batch, before.lag, before.rows_per_s, before.is_in_batch) == (
        *(None, 100, None, False),
    )
    for number in range(4):
        note(checkpoint, number, f'{{"next": {20 * number + 21}}}', done=number < 3)
    (found,) = status(made).sinks
    assert (found.last_batch, found.is_in_batch) == (2, True)
    assert found.last_at is not None
    assert found.last_at.timestamp() == BEGIN_S + 20
    assert (found.lag, found.rows_per_s) == (40, 2.0)


def test_the_lag_of_several_sources_is_their_sum(tmp_path: Path) -> None:
    send(tmp_path / "left", range(100))
    send(tmp_path / "right", range(10))
    made = both(tmp_path, left=tmp_path / "left", right=tmp_path / "right")
    checkpoint = tmp_path / "out.state" / "both" / "output"
    note(checkpoint, 0, '{"next": 6}', '{"next": 31}')
    assert status(made).sinks[0].lag == 75
    # One that has no offset yet leaves it to the consumers, none of which is there.
    note(checkpoint, 1, '{"next": 31}', "-")
    assert status(made).sinks[0].lag == 110


def test_a_state_of_other_sources_is_refused(tmp_path: Path) -> None:
    for name in ("left", "right", "other"):
        send(tmp_path / name, range(100))
    with tm.Log(tmp_path / "left") as log:
        log.receiver("both.output", start="earliest").close()
    made = both(tmp_path, left=tmp_path / "left", right=tmp_path / "right")
    other = both(tmp_path, left=tmp_path / "other")
    state = State.of(made, None, is_remote=False)
    check_sources(other, state, "output")  # It is new.
    note(tmp_path / "out.state" / "both" / "output", 0, '{"next": 51}')
    check_sources(made, state, "output")  # The query may read one of both alone.
    with pytest.raises(tm.InvalidPipeline, match=r"other sources than .*other, where nobody"):
        check_sources(other, state, "output")
    lenient = both(tmp_path, left=Source(tmp_path / "other", failOnDataLoss=False))
    check_sources(lenient, state, "output")


def test_how_far_a_batch_run_is_lasts(tmp_path: Path) -> None:
    program = f"""
import sys
from tidemill.spark.pipelines.state import BatchRun, State
state = State(sys.argv[1], "copy", is_remote=False)
print("{MARK}", file=sys.stderr, flush=True)
state.note_batch(BatchRun(7, done=("output",)))
"""
    draft, folder = synced(program, tmp_path)
    assert Path(draft).parent == tmp_path
    assert Path(folder) == tmp_path
    assert State(str(tmp_path), "copy", is_remote=False).batch().number == 7


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_a_checkpoint_that_is_older_than_its_sink_is_refused(tmp_path: Path, kind: str) -> None:
    made = both(tmp_path, left=tmp_path / "left")
    state, checkpoint = State.of(made, None, is_remote=False), tmp_path / "out.state/both/output"
    for number in range(3):
        note(checkpoint, number, '{"next": 1}', done=number < 2)
    check_sink(made, state, "output")  # Nothing is there.
    id = state.transaction("output")
    staging: Staging = FileLogStaging(tmp_path / "out", id)
    if kind == "queue":
        tm.PriorityQueue(tmp_path / "out").close()
        staging = QueueStaging(tmp_path / "out", id)
    else:
        tm.Log(tmp_path / "out").close()
    staging.commit(Transaction(id, 2), [])
    check_sink(made, state, "output")  # Which the checkpoint has begun.
    staging.commit(Transaction(id, 3), [])
    with pytest.raises(tm.TransactionRewound, match=r"up to 3 .* of those up to 2: bring it back"):
        check_sink(made, state, "output")


def test_a_source_of_another_kind_does_not_tell(tmp_path: Path) -> None:
    made = both(tmp_path, left=Source(tmp_path, format="text"))
    note(tmp_path / "out.state" / "both" / "output", 0, '{"logOffset":0}')
    (found,) = status(made).sinks
    assert (found.last_batch, found.lag, found.rows_per_s) == (0, None, None)


def test_what_is_no_offset_log_is_told_as_damage(tmp_path: Path) -> None:
    note(tmp_path, 3, '{"next": 6}')
    (tmp_path / "offsets" / "3").write_text("v9\n{}")
    with pytest.raises(tm.Corrupt, match="no entry of an offset log"):
        done_batches(tmp_path, 10)
    (tmp_path / "offsets" / "3").unlink()
    assert done_batches(tmp_path, 10) == []
    assert last_begun(tmp_path) is None
    (tmp_path / "state" / "0").mkdir(parents=True)
    (tmp_path / "state" / "0" / "1.delta").write_bytes(b"12345")
    assert state_bytes(tmp_path) == 5


def test_who_runs_a_pipeline_holds_its_state(tmp_path: Path) -> None:
    state = State.of(both(tmp_path), None, is_remote=False)
    assert state.runner() is None
    state.prepare()
    assert state.runner() is None
    state.check_free()
    assert state.transaction("output") != state.transaction("output", kind="batch")
    assert state.transaction("output").startswith("both.output.")


def test_a_state_on_a_server_is_where_the_server_has_it(tmp_path: Path) -> None:
    made = both(tmp_path)
    state = State.of(made, "states/", is_remote=True)
    assert (state.location, state.folder) == ("states/both", None)
    assert state.runner() is None
    moved = State.of(made, "s3a://bucket/states", is_remote=False)
    assert (moved.location, moved.folder) == ("s3a://bucket/states/both", None)
    assert moved.transaction("output") != state.transaction("output")
