"""Streaming queries that stop and start again, lose their memory, or meet another: their output is
exact, or they say why they cannot go on.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.sink import killed_source
from tests.spark.sink.outputs import (
    Output,
    add_files,
    expected,
    forget_last_commit,
    numbered,
    run,
)

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[3]


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


@pytest.fixture
def killed(tmp_path: Path, checkpoint: str) -> Callable[..., subprocess.Popen[str]]:
    """Starts a driver of its own, which is killed at a point."""

    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "readlink").write_text(killed_source.READLINK)
    (programs / "readlink").chmod(0o755)

    def start(point: str, output: Output) -> subprocess.Popen[str]:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
            "TIDEMILL_TEST_POINT": point,
            "TIDEMILL_TEST_FOLDER": str(tmp_path),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        arguments = [output.kind, output.address, checkpoint, str(tmp_path / "in")]
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sink.killed_driver", *arguments],
            env=environment,
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


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
    killed: Callable[..., subprocess.Popen[str]],
    point: str,
    kind: str,
    request: pytest.FixtureRequest,
) -> None:
    output = Output.of(kind, tmp_path, request)
    add_files(tmp_path / "in", range(4))
    with killed(point, output) as process:
        _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert (tmp_path / "reached").read_text() == point, errors
    is_published = point in (killed_source.AFTER_PUBLISH, killed_source.BEFORE_COMMIT_LOG)
    assert output.numbers() == expected(3 if is_published else 2)
    assert (tmp_path / "driver.status").read_text() == str(-signal.SIGKILL)
    # Spark had noted what the batch is made of, and not that it was done.
    assert (Path(checkpoint) / "offsets" / str(killed_source.BATCH)).is_file()
    entry = Path(checkpoint) / "commits" / str(killed_source.BATCH)
    assert not entry.exists()
    run(numbered(spark, tmp_path / "in"), output, checkpoint)
    assert output.numbers() == expected(4)


def test_a_driver_that_was_thought_dead_changes_nothing(
    spark: SparkSession,
    tmp_path: Path,
    checkpoint: str,
    killed: Callable[..., subprocess.Popen[str]],
    request: pytest.FixtureRequest,
) -> None:
    """Two drivers on one checkpoint: the first hangs before it commits, the second goes on."""
    output = Output.of("log", tmp_path, request)
    add_files(tmp_path / "in", range(4))
    with killed(killed_source.WAITING, output) as process:
        try:
            deadline = time.monotonic() + 600
            while not (tmp_path / "reached").exists():
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
            run(numbered(spark, tmp_path / "in"), output, checkpoint)
            assert output.numbers() == expected(4)
        finally:
            (tmp_path / "go").touch()
            _, errors = process.communicate(timeout=600)
    assert process.returncode != 0
    assert "TransactionRewound" in errors
    assert output.numbers() == expected(4)
