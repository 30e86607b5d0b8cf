"""The main job end to end, on a real Spark, with real kills; and that its proof can fail."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.gateway import main_job
from tidemill.gateway.demo.telemetry import START_NS
from tidemill.gateway.main_job.proof import prove
from tidemill.gateway.main_job.readings import Readings
from tidemill.gateway.main_job.report import page
from tidemill.gateway.main_job.story import Story
from tidemill.progress import NO_PROGRESS

ITEMS = 160_000


@pytest.mark.slow
def test_the_main_job_proves_its_totals_and_writes_a_report(tmp_path: Path) -> None:
    folder, report = tmp_path / "job", tmp_path / "report.html"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidemill", "demo", "--items", str(ITEMS), "--json"),
            *("--folder", str(folder), "--report", str(report)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    stages = {stage["name"]: stage for stage in document["stages"]}
    assert list(stages) == [
        *("push", "merge", "pipeline", "push again", "merge again", "pipeline again", "proof")
    ]
    assert stages["push"]["killed"]
    assert stages["pipeline"]["killed"]
    assert ITEMS * 0.6 <= stages["push"]["rows"] <= stages["merge"]["rows"] <= ITEMS
    assert stages["merge"]["rows"] + stages["merge again"]["rows"] == ITEMS + 8
    assert stages["pipeline again"]["rows"] + stages["pipeline"]["rows"] == 3 * (ITEMS + 8)
    assert len(document["checks"]) == 13
    assert all(check["expected"] == check["found"] for check in document["checks"])
    assert document["bad"] == {"no value": 161, "out of range": 106}
    _check_page(report, document)
    _check_that_the_proof_can_fail(folder, tmp_path)


def _check_page(report: Path, document: dict[str, list[dict[str, str]]]) -> None:
    text = report.read_text()
    parser = _Open()
    parser.feed(text)
    assert parser.left == []
    assert text.count("kill -9") == 2
    assert text.count("<polyline") == 3 * 8
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    for check in document["checks"]:
        assert check["claim"] in text


class _Open(HTMLParser):
    """Which elements are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag != "meta":
            self.left.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.left.pop() == tag


def _check_that_the_proof_can_fail(folder: Path, tmp_path: Path) -> None:
    readings = Readings(ITEMS)
    prove(folder, readings, Story(ITEMS))
    archive = next((folder / "archive").glob("*.parquet"))
    shutil.copy(archive, archive.with_name("twice.parquet"))
    with pytest.raises(tm.Bug, match="readings in the Parquet archive"):
        prove(folder, readings, Story(ITEMS))
    archive.with_name("twice.parquet").unlink()
    lost = tmp_path / "aside.parquet"
    shutil.move(archive, lost)
    with pytest.raises(tm.Bug, match="readings in the Parquet archive"):
        prove(folder, readings, Story(ITEMS))
    shutil.move(lost, archive)
    with tm.PriorityQueue(folder / "windows") as queue:
        window = queue.pop(1)
    with pytest.raises(tm.Bug, match="windows in the queue of results: 1440 were expected"):
        prove(folder, readings, Story(ITEMS))
    with tm.PriorityQueue(folder / "windows") as queue:
        row = window.to_arrow().drop_columns(["seq", "time", "key"]).to_pylist()[0]
        queue.push([(window.keys[0].as_py(), {**row, "total_hundredths": 0})])
    with pytest.raises(tm.Bug, match="sum of all readings"):
        prove(folder, readings, Story(ITEMS))


def test_few_readings_have_a_report_as_well() -> None:
    story = Story(10)
    with story.stage("push", "devices push"):
        pass
    window = pa.table(
        {
            "start": pa.array([START_NS // 1_000], pa.timestamp("us", "UTC")),
            "device": pa.array([0], pa.int32()),
            "metric": ["humidity"],
            "readings": [1],
            "total_hundredths": [5_500],
        }
    )
    for count, drawn in ((0, 0), (1, 8)):
        story.windows = window.slice(0, count)
        assert page(story).count("<polyline") == drawn


def test_readings_follow_from_their_numbers() -> None:
    readings = Readings(50_000)
    everything = np.arange(50_000)
    assert np.array_equal(readings.numbers(readings.keys(everything)), everything)
    sent = np.sort(np.concatenate([np.concatenate(readings.batches(one)) for one in range(8)]))
    assert np.array_equal(sent, everything)
    table = readings.table(everything)
    values = table.column("value").to_numpy()
    good = readings.is_good(everything)
    assert np.array_equal(np.round(values[good] * 100), readings.hundredths(everything)[good])
    assert ((values[good] >= 0) & (values[good] <= 1_000)).all()
    assert np.isnan(values[readings.is_without_value(everything)]).all()
    assert (values[readings.is_out_of_range(everything)] > 1_000).all()
    assert good.sum() + table.column("value").null_count + (values > 1_000).sum() == 50_000


def test_a_report_that_could_not_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(tm.InvalidInput, match="is a folder; name a file for the report"):
        main_job.run(
            items=10,
            folder=tmp_path / "job",
            report=tmp_path,
            is_json=True,
            progress=lambda _: NO_PROGRESS,
            say=print,
        )
    assert not (tmp_path / "job").exists()
