"""The demonstration does what it says, and would notice if something went wrong."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

import tidemill as tm
from tidemill.gateway import demo
from tidemill.gateway.demo.inventory import Inventory
from tidemill.gateway.demo.job import Demo
from tidemill.gateway.demo.telemetry import DEVICES, LATE_NS_MAX, SCHEMA, Telemetry

ITEMS = 200_000


def test_a_run_kills_a_process_loses_nothing_and_leaves_an_empty_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, picture = tmp_path / "queue", tmp_path / "pictures" / "demo.svg"
    demo.run(items=ITEMS, folder=folder, picture=picture)
    said = capsys.readouterr().out
    assert "killed by SIGKILL" in said
    assert "nothing acknowledged is lost" in said
    assert "every event came out once at each end" in said
    assert str(picture) in said
    with tm.PriorityQueue(folder) as queue:
        assert len(queue) == 0
        assert len(queue.fork("audit")) == 0
        assert queue.stats().next_seq == ITEMS + 1


@pytest.mark.parametrize("items", [1, 7, 5_000])
def test_few_events_are_enough(
    tmp_path: Path, items: int, capsys: pytest.CaptureFixture[str]
) -> None:
    demo.run(items=items, picture=tmp_path / "demo.svg", is_json=True)
    result = json.loads(capsys.readouterr().out)
    assert result["items"] == items
    assert 0 < result["acknowledged_before_the_kill"] <= result["found_after_the_kill"] <= items
    phases = {phase["name"]: phase["items"] for phase in result["phases"]}
    assert phases["pop"] == items
    assert phases["audit"] + phases["audit rest"] == items
    assert result["lost"] == result["doubled"] == 0


def test_the_picture_is_svg_with_the_kill_in_it(tmp_path: Path) -> None:
    picture = tmp_path / "demo.svg"
    demo.run(items=ITEMS, picture=picture, is_json=True)
    root = ET.fromstring(picture.read_text())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    texts = [element.text or "" for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "kill -9" in texts
    assert any(f"{ITEMS:,} events" in text for text in texts)
    # Every number in the drawing is one.
    assert not re.search(r"\b(nan|inf)\b", picture.read_text())


def test_a_folder_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("This folder holds something else.")
    with pytest.raises(tm.InvalidInput, match="not empty"):
        demo.run(items=10, folder=tmp_path, picture=tmp_path / "demo.svg")
    assert not (tmp_path / "demo.svg").exists()


def test_what_stops_the_devices_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = Demo(10, tmp_path / "file", tell=lambda _: None, progress=lambda _: nullcontext())  # type: ignore[arg-type, return-value]
    with pytest.raises(tm.SurroundingsError, match="is a file, not a folder"):
        job.run()


def test_events_arrive_out_of_order_and_all_of_them_once() -> None:
    telemetry = Telemetry(ITEMS)
    arrived = [np.concatenate(telemetry.batches(device)) for device in range(DEVICES)]
    assert np.array_equal(np.sort(np.concatenate(arrived)), np.arange(ITEMS))
    for numbers in arrived:
        assert (np.diff(numbers) < 0).mean() > 0.3
    spacing_ns = telemetry.keys(np.array([0, 1]))[1] - telemetry.keys(np.array([0]))[0]
    # Nobody but the device that was offline is later than events may be.
    for device, numbers in enumerate(arrived):
        lateness = np.maximum.accumulate(numbers) - numbers
        is_late = bool((lateness * spacing_ns > LATE_NS_MAX).any())
        assert is_late == (device == 2)


def batch_of(telemetry: Telemetry, numbers: list[int]) -> tm.Batch:
    chosen = np.array(numbers)
    events = telemetry.events(chosen)
    keys = telemetry.keys(chosen).tolist()
    return tm.Batch.of(
        list(zip(keys, events.select(SCHEMA.names).to_pylist(), strict=True)), schema=SCHEMA
    )


def test_the_inventory_notices_what_is_doubled_unsorted_invented_changed_torn_or_lost() -> None:
    telemetry = Telemetry(100)

    def fresh() -> Inventory:
        inventory = Inventory(telemetry)
        inventory.add(batch_of(telemetry, [1, 2, 3]))
        return inventory

    assert fresh().count == 3
    with pytest.raises(tm.Bug, match="twice"):
        fresh().add(batch_of(telemetry, [3, 4]))
    with pytest.raises(tm.Bug, match="doubled, or not in order"):
        fresh().add(batch_of(telemetry, [6, 5]))
    with pytest.raises(tm.Bug, match="no device"):
        fresh().add(batch_of(telemetry, [100]))
    changed = [(key, {**value, "value": 1.0}) for key, value in batch_of(telemetry, [5])]
    with pytest.raises(tm.Bug, match="other contents"):
        fresh().add(tm.Batch.of(changed, schema=SCHEMA))
    with pytest.raises(tm.Bug, match="in part"):
        fresh().has(np.array([3, 4]))
    with pytest.raises(tm.Bug, match="97 events are lost"):
        fresh().check_complete()
