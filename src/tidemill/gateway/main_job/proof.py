"""What came out, held against what went in: every number, not a sample."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidemill as tm
from tidemill.gateway.demo.telemetry import DEVICES, METRICS, START_NS
from tidemill.gateway.main_job.devices import queue_folder
from tidemill.gateway.main_job.readings import (
    NO_VALUE,
    OUT_OF_RANGE,
    WINDOW_S,
    WINDOWS,
    Numbers,
    Readings,
)
from tidemill.gateway.main_job.story import Check, Story

_GROUPS = WINDOWS * DEVICES * len(METRICS)


def prove(folder: Path, readings: Readings, story: Story) -> None:
    """Hold everything against everything, and write down what was found; raises `tm.Bug` if
    anything is lost, doubled or wrong.
    """
    everything = np.arange(readings.items, dtype=np.int64)
    good = everything[readings.is_good(everything)]
    _equal(story, "items left in the queues of the devices", 0, _left(folder))
    with tm.Log(str(folder / "readings")) as log:
        rows = log.ends().next - 1
    _equal(story, "rows of the merged log, heartbeats included", readings.items + DEVICES, rows)
    _windows(folder, readings, good, story)
    archived = _archived(folder, readings)
    _equal(story, "readings in the Parquet archive", len(good), len(archived))
    _equal(story, "... each of them once", True, bool(np.array_equal(np.sort(archived), good)))
    _bad(folder, readings, everything, story)


def _equal(story: Story, claim: str, expected: object, found: object) -> None:
    if expected != found:
        raise tm.Bug(f"{claim}: {expected} were expected, and {found} found")
    story.checks.append(Check(claim, _words(expected), _words(found)))


def _words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _left(folder: Path) -> int:
    left = 0
    for device in range(DEVICES):
        with tm.PriorityQueue(queue_folder(folder, device)) as queue:
            left += len(queue)
    return left


def _windows(folder: Path, readings: Readings, good: Numbers, story: Story) -> None:
    """Counts and sums of each window, device and metric."""
    with tm.PriorityQueue(folder / "windows", read_only=True) as queue:
        table = pa.Table.from_batches([queue.peek(2 * _GROUPS).to_arrow()])
    starts = table.column("start").cast(pa.int64()).to_numpy() * 1_000
    metric = pc.index_in(table.column("metric"), METRICS).to_numpy()
    device = table.column("device").to_numpy()
    group = _group((starts - START_NS) // (WINDOW_S * 10**9), device, metric)
    expected = _group(
        (readings.keys(good) - START_NS) // (WINDOW_S * 10**9),
        good % DEVICES,
        readings.metric(good),
    )
    counts = np.bincount(expected, minlength=_GROUPS)
    totals = np.zeros(_GROUPS, np.int64)
    np.add.at(totals, expected, readings.hundredths(good))
    _equal(story, "windows in the queue of results", int((counts > 0).sum()), table.num_rows)
    _equal(story, "... each of them once", table.num_rows, len(set(group.tolist())))
    found = table.column("readings").to_numpy()
    _equal(story, "readings in all windows together", len(good), int(found.sum()))
    _equal(story, "... as many as expected in each", True, bool((counts[group] == found).all()))
    sums = table.column("total_hundredths").to_numpy()
    _equal(story, "sum of all readings, in hundredths", int(totals.sum()), int(sums.sum()))
    _equal(story, "... the expected one in each", True, bool((totals[group] == sums).all()))
    story.windows = table


def _group(window: Numbers, device: Numbers, metric: Numbers) -> Numbers:
    return (window * DEVICES + device) * len(METRICS) + metric


def _archived(folder: Path, readings: Readings) -> Numbers:
    """The numbers of the readings in the archive, heartbeats left out."""
    parts = []
    for file in sorted((folder / "archive").glob("*.parquet")):
        keys = pq.read_table(file, columns=["measured_ns"]).column(0).to_numpy()
        parts.append(readings.numbers(keys))
    numbers = np.concatenate(parts) if parts else np.empty(0, np.int64)
    return numbers[numbers >= 0]


def _bad(folder: Path, readings: Readings, everything: Numbers, story: Story) -> None:
    """Each bad row, with its reason."""
    found: Counter[str] = Counter()
    keys = []
    with tm.Log(str(folder / "bad")) as log:
        end, start = log.ends().next, 1
        while start < end:
            letters = log.read(start=start, rows_max=10_000).rows()
            found.update(letter["reason"] for letter in letters)
            keys += [json.loads(letter["row"])["measured_ns"] for letter in letters]
            start += len(letters)
    without = int(readings.is_without_value(everything).sum())
    beyond = int(readings.is_out_of_range(everything).sum())
    _equal(story, f"rows set aside: {NO_VALUE}", without, found[NO_VALUE])
    _equal(story, f"rows set aside: {OUT_OF_RANGE}", beyond, found[OUT_OF_RANGE])
    numbers = np.sort(readings.numbers(np.array(keys, np.int64)))
    expected = everything[~readings.is_good(everything)]
    _equal(story, "... the bad ones, each once", True, bool(np.array_equal(numbers, expected)))
    story.bad = dict(found)
