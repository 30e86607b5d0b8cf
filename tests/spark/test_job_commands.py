"""Jobs on Spark as commands, in this process: a Spark of their own would take each of them long."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tidemill.gateway.command_line import main, parser
from tidemill.gateway.console import Console
from tidemill.gateway.spark_job import run_job

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What a command that has to succeed says."""
    assert main([*arguments, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def test_a_log_is_replayed_archived_compacted_and_profiled(
    no_spark: None, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tm.Log("orders") as log, log.publisher() as out:
        for value in (b"one", b"two", b"three"):
            out.send(value)
            if value != b"three":
                log.archive("old")
    replay = ["replay", "orders", "--into", "again", "--from", "2", "--where", "value <> 'two'"]
    assert told(capsys, *replay) == {
        "rows": 1,
        "first": 1,
        "last": 1,
        "transactions": 1,
        "upto": 3,
    }
    with tm.Log("again") as log:
        assert log.read().rows() == [b"three"]
    done = told(capsys, "archive", "orders", "--spark")
    assert (done["rows"], done["segments"]) == (1, 1)
    done = told(capsys, "compact", "orders")
    assert (done["segments_before"], done["segments_after"], done["total"]) == (3, 1, 1)
    assert len(list((folder / "old" / "segments").iterdir())) == 1
    done = told(capsys, "profile", "old", "--report", "old.html")
    assert (done["rows"], done["duplicates"], done["report"]) == (3, 0, "old.html")
    assert done["columns"][0]["greatest"] == "0x74776f"
    assert "<svg" in (folder / "old.html").read_text()


def test_what_spark_calls_a_job_shows_no_password(no_spark: None) -> None:
    def name(spark: SparkSession, _show: Callable[[int, float], None]) -> str:
        return str(spark.sparkContext.appName)

    found = run_job(
        parser().parse_args(["replay", "orders", "--into", "again"]),
        Console(is_json=True, shows_progress=False),
        job="replay of",
        place="mysql://app:hush@host/shop/orders",
        doing="replaying",
        done="replayed",
        noun="row",
        work=name,
    )
    assert found == "mysql://app@host/shop/orders"


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["replay", "nowhere", "--into", "again"], 4),
        (["compact", "nowhere"], 4),
        (["profile", "nowhere"], 4),
        (["archive", "nowhere", "old", "--spark"], 4),
    ],
)
def test_what_a_job_cannot_use_is_told_before_spark_starts(
    folder: Path, arguments: list[str], status: int
) -> None:
    assert main(arguments) == status
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    "arguments", [["replay", "a"], ["replay", "a", "--into", "b", "--since", "yesterday"]]
)
def test_what_makes_no_sense_is_refused(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
