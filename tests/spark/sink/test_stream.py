"""Streaming queries that stop and start again, lose their memory, or meet another: their output is
exact, or they say why they cannot go on.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.sink import killed_source
from tests.spark.sink.conftest import Killed
from tests.spark.sink.outputs import (
    Output,
    add_files,
    expected,
    forget_last_commit,
    numbered,
    run,
)

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("kind", ["queue", "log", "mysql"])
def test_a_batch_that_is_repeated_is_written_once(
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: str,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    output = Output.of(kind, tmp_path, request)
    add_files(tmp_path / "in", range(2))
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(2)
    assert forget_last_commit(checkpoint) == 1
    add_files(tmp_path / "in", range(2, 3))
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(3)
    # A checkpoint that is gone begins at 0 again under a new id: all of it is written once more.
    # With an id that stays, that is refused.
    fresh = f"{checkpoint}-fresh"
    run(numbered(spark, tmp_path / "in"), output, fresh, txnAppId="job")
    assert output.numbers() == expected(3) * 2
    shutil.rmtree(fresh)
    with pytest.raises(StreamingQueryException, match="TransactionRewound: number 0 of"):
        run(numbered(spark, tmp_path / "in"), output, fresh, txnAppId="job")
    assert output.numbers() == expected(3) * 2


@pytest.mark.parametrize("kind", ["queue", "log", "mysql"])
def test_the_first_batch_of_a_new_checkpoint_is_no_repetition_of_the_only_one_of_another(
    spark: SparkSession, tmp_path: Path, checkpoint: str, kind: str, request: pytest.FixtureRequest
) -> None:
    """Both have the number 0; rows that had come meanwhile were skipped in silence."""
    output = Output.of(kind, tmp_path, request)
    add_files(tmp_path / "in", range(1))
    run(numbered(spark, tmp_path / "in"), output, checkpoint, txnAppId="job")
    assert forget_last_commit(checkpoint) == 0
    run(numbered(spark, tmp_path / "in"), output, checkpoint, txnAppId="job")
    assert output.numbers() == expected(1)
    shutil.rmtree(checkpoint)
    add_files(tmp_path / "in", range(1, 2))
    with pytest.raises(StreamingQueryException, match=r"TransactionRewound: number 0 .* another"):
        run(numbered(spark, tmp_path / "in"), output, checkpoint, txnAppId="job")
    assert output.numbers() == expected(1)


def test_an_output_that_is_gone_is_not_made_anew_in_silence(
    spark: SparkSession, tmp_path: Path, checkpoint: str
) -> None:
    output = Output("log", str(tmp_path / "log"))
    add_files(tmp_path / "in", range(1))
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    shutil.move(output.address, tmp_path / "moved")
    add_files(tmp_path / "in", range(1, 2))
    with pytest.raises(StreamingQueryException, match=r"has written before, and now nothing is"):
        run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert not Path(output.address).exists()
    shutil.move(tmp_path / "moved", output.address)
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(2)


@pytest.mark.parametrize(
    ("point", "kind"),
    [
        (killed_source.AFTER_OFFSETS, "log"),
        (killed_source.AFTER_STAGING, "mysql"),
        (killed_source.AFTER_PUBLISH, "queue"),
        (killed_source.BEFORE_COMMIT_LOG, "mysql"),
    ],
)
def test_a_driver_killed_in_the_middle_of_a_batch_is_followed_by_another(
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: str,
    killed: Killed,
    point: str,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    output = Output.of(kind, tmp_path, request)
    add_files(tmp_path / "in", range(4))
    killed.at(point, output, batch=2)
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(4)


def test_a_driver_that_was_thought_dead_changes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: str,
    killed: Killed,
    request: pytest.FixtureRequest,
) -> None:
    """Two drivers on one checkpoint: the first hangs before it commits, the second goes on."""
    output = Output.of("log", tmp_path, request)
    add_files(tmp_path / "in", range(4))
    with killed.waiting(output, batch=2) as driver:
        run(numbered(spark, tmp_path / "in"), output, checkpoint)
        assert output.numbers() == expected(4)
    assert "TransactionRewound" in driver.errors
    assert output.numbers() == expected(4)
