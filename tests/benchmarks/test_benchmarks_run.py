"""The benchmarks run and write what they promise; how fast anything is, no test says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import WORKLOADS
from benchmarks.data import ascending
from benchmarks.ours import frame_bytes
from benchmarks.result import Result, Target
from benchmarks.settings import Settings
from tests.services.mariadb import MariaDB
from tidemill.gateway.disk_floor import Floor

ROOT = Path(__file__).resolve().parents[2]
FIELDS = {
    "workload",
    "ours",
    "peer",
    "peer_name",
    "ratio",
    "unit",
    "conditions",
    "target",
    "met",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload",
    [
        "batches",
        "peers",
        "single",
        "overlap",
        "shovel",
        "growth",
        "command line",
        "packs",
        "networked",
        "log reading",
        "log latency",
        "log embedded",
        "archive",
        "counters",
        "ring",
    ],
)
def test_a_quick_run_writes_one_object_for_each_line(workload: str, tmp_path: Path) -> None:
    path = tmp_path / "embedded.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--rounds", "1"]
    done = subprocess.run(
        [*command, "--only", workload, "--results", str(path), "--folder", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(path.read_text())
    assert results
    for result in results:
        assert set(result) == FIELDS
        if result["ours"] is None:
            # A server or client that is not here, which the line says.
            assert "not installed" in result["conditions"]["note"]
            continue
        assert result["ours"] > 0
        assert result["workload"] in done.stdout
        assert {"cpus", "python", "pyarrow", "file system", "disk sync"} <= set(
            result["conditions"]
        )
        if result["peer"] is not None:
            assert result["ratio"] == pytest.approx(result["ours"] / result["peer"])
    assert [path.name for path in tmp_path.iterdir()] == ["embedded.json"]


@pytest.mark.parametrize("workload", ["packs", "networked"])
def test_a_server_that_is_missing_is_told_of_and_ends_nothing(
    workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MariaDB, "programs", ("no-such-server",))
    (result,) = WORKLOADS[workload](Settings(tmp_path, rounds=1, quick=True))
    assert result.ours is None
    assert result.note == "no-such-server is not installed: make services"


def test_a_frame_is_at_least_as_long_as_what_is_in_it(tmp_path: Path) -> None:
    rows = ascending(0)
    assert rows.nbytes <= frame_bytes(tmp_path) < 2 * rows.nbytes


def test_a_floor_that_would_write_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="measures nothing"):
        Floor(tmp_path / "floor", write_bytes=0, writes=1, sync=False)


@pytest.mark.parametrize(
    ("target", "met"),
    [
        (Target("at least", 2.0), True),
        (Target("at least", 2.1), False),
        (Target("at most", 2.0), True),
        (Target("below", 4.0, of="ours"), False),
        (None, None),
    ],
)
def test_a_result_is_judged_by_its_ratio_or_its_own_figure(
    target: Target | None, met: bool | None
) -> None:
    assert Result("w", 4.0, "s", 2.0, "peer", target).met is met


def test_a_skipped_result_meets_nothing() -> None:
    assert Result("w", None, "MB", target=Target("below", 200, of="ours")).met is None
