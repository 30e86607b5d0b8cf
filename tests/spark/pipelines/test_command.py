"""`tidemill pipeline`, as it is typed."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.shell import Shell, shell
from tests.spark.pipelines.flows import check_split, write_split
from tests.spark.pipelines.numbers import send
from tidemill.gateway.command_line import main

__all__ = ["shell"]

WAIT_S = 600


@pytest.mark.slow
def test_a_run_shows_bars_is_seen_by_others_and_ends_behind_its_batch(shell: Shell) -> None:
    folder = shell.folder
    write_split(folder)
    send(folder / "in", range(120))
    leader, follower = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemill", "pipeline", "run", "flows.py", "--every", "0.2s"],
        cwd=folder,
        env=shell.environment,
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        start_new_session=True,
    )
    os.close(follower)
    try:
        os.set_blocking(leader, False)
        seen, deadline_s = b"", time.monotonic() + WAIT_S
        status: dict[str, Any] = {}
        while status.get("lags") != [0, 0, 0]:
            assert process.poll() is None, seen
            assert time.monotonic() < deadline_s, (seen, status)
            seen += _read(leader)
            if (folder / "log.state" / "split" / "dead_letters" / "commits" / "2").exists():
                (found,) = shell.good("tidemill pipeline status flows.py --json").json()[
                    "pipelines"
                ]
                status = {**found, "lags": [sink["lag"] for sink in found["sinks"]]}
            else:
                time.sleep(0.2)
        assert status["runner"] == process.pid
        assert [sink["last_batch"] for sink in status["sinks"]] == [2, 2, 2]
        assert all(sink["rows_per_s"] > 0 for sink in status["sinks"])
        error = shell.refused("tidemill pipeline run flows.py --once", 5, "locked")
        assert error["pid"] == process.pid
        process.send_signal(signal.SIGINT)
        while process.poll() is None:
            assert time.monotonic() < deadline_s, seen
            seen += _read(leader)
            time.sleep(0.1)
        seen += _read(leader)
    finally:
        process.kill()
        os.close(leader)
    text = seen.decode()
    assert process.returncode == 130, text
    assert re.search(r"split\.parquet batch \d +━+ 100 %  120 rows", text), text
    *_, first, second, third, last = text.splitlines()
    assert first.endswith("split.log: 120 rows in 3 batches, 102 written, 0 behind")
    assert second == "split.parquet: 120 rows in 3 batches, 0 behind"
    assert third == "split.dead_letters: 120 rows in 3 batches, 18 written, 0 behind"
    assert last == "tidemill: interrupted"
    assert "Traceback" not in text
    check_split(folder, 120)
    listed = shell.good("tidemill pipeline status flows.py").out
    assert re.search(r"split\.log +nobody +2 +\d+ s ago +0 ", listed)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 100_000)
    except OSError:
        return b""  # Nothing yet, or everybody has left it.


def test_pipelines_are_listed_with_their_ends_and_their_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_split(tmp_path)
    assert main(["pipeline", "list", str(file)]) == 0
    heading, line = capsys.readouterr().out.splitlines()
    assert heading.split() == ["pipeline", "sources", "sinks", "state"]
    assert line.replace(str(tmp_path), "").split() == [
        *("split", "/in", "/log,", "/parquet,", "/bad", "/log.state/split"),
    ]
    monkeypatch.setenv("TIDEMILL_STATE", str(tmp_path / "states"))
    assert main(["pipeline", "list", str(file), "--json"]) == 0
    assert f'"state": "{tmp_path}/states/split"' in capsys.readouterr().out


def test_a_password_is_not_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "copy.py"
    file.write_text(
        "from tidemill.spark import pipeline\n"
        "@pipeline(source='mysql://app:hush@db/shop/orders', sink='copy/')\n"
        "def copy(orders):\n"
        "    return orders\n"
    )
    assert main(["pipeline", "list", str(file), "--json"]) == 0
    assert '"orders": "mysql://app@db/shop/orders"' in capsys.readouterr().out


def test_the_status_of_a_pipeline_that_never_ran(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_split(tmp_path)
    assert main(["pipeline", "status", str(file)]) == 4
    assert "/in holds no queue and no log" in capsys.readouterr().err
    send(tmp_path / "in", range(3))
    assert main(["pipeline", "status", str(file), "split"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        [f"split.{sink}", "nobody", "-", "-", "3", "-", "0", "bytes"]
        for sink in ("log", "parquet", "dead_letters")
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["run", "none.py"], 4, "there is no file none.py"),
        (["run", "none.py", "--remote", "sc://localhost:1"], 4, "there is no file none.py"),
        (["list", "."], 3, ". is a folder, not a file of Python"),
        (["run", "flows.py", "merge"], 3, "has no pipeline 'merge'; there are: split"),
        (["status", "flows.py", "--state", "s3a://bucket/states"], 3, "that this machine sees"),
        (["run", "flows.py", "--once", "--every", "5s"], 2, "not allowed with argument --once"),
        (["run", "flows.py", "--every", "often"], 2, "no duration such as 30s"),
        (["run", "flows.py", "--master", "a", "--remote", "b"], 2, "not allowed with"),
        (["run", "flows.py", "--conf", "cores"], 2, "no setting such as spark.cores.max=4"),
    ],
)
def test_what_makes_no_sense_is_refused_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    message: str,
) -> None:
    write_split(tmp_path)
    monkeypatch.chdir(tmp_path)
    try:
        found = main(["pipeline", *arguments])
    except SystemExit as ended:
        found = int(str(ended.code))
    assert (found, message in capsys.readouterr().err) == (status, True)
