"""What a profile tells is what is there: held against the same counted row by row."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import tidemill as tm
from tidemill.errors import InvalidInput, NotAQueue
from tidemill.gateway.profile_report import page
from tidemill.spark import profile
from tidemill.spark.profiling.profile import Gap, Histogram, KeyProfile, Profile

START_NS = 1_790_000_000 * 10**9
READINGS = pa.schema([("device", pa.int64()), ("value", pa.float64())])


def readings(path: Path) -> list[tuple[int, int, float | None]]:
    """A queue of readings by time, some late and some twice; returns them by arrival."""
    random = np.random.default_rng(3)
    with tm.PriorityQueue(path, schema=READINGS, sync="none") as queue:
        for batch in range(20):
            at = np.arange(batch * 100, batch * 100 + 100)
            keys = START_NS + at * 10**9
            if batch >= 10:
                keys += 7_200 * 10**9  # Nobody measured for two hours.
            keys -= np.where(random.random(100) < 0.1, random.integers(1, 900, 100), 0) * 10**9
            values = pa.array(np.where(at % 50 == 0, np.nan, at % 7 / 4), from_pandas=True)
            queue.push(pa.table({"key": keys, "device": at % 4, "value": values}))
        rows = queue.peek(10**6).to_arrow().to_pylist()
    rows.sort(key=lambda row: row["seq"])
    return [(row["key"], row["device"], row["value"]) for row in rows]


def lateness(keys: list[int]) -> list[float]:
    """How far each is behind the latest before it, the dumb way."""
    found, latest = [], keys[0]
    for key in keys:
        found.append(max((latest - key) / 1e9, 0.0))
        latest = max(latest, key)
    return found


@pytest.mark.slow
def test_a_queue_is_told_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    rows = readings(tmp_path / "queue")
    shown: list[float] = []
    found = profile(spark, tmp_path / "queue", on_progress=lambda _, share: shown.append(share))
    assert (found.rows, found.kind, found.missing) == (2_000, "queue", 0)
    assert (found.seq_first, found.seq_last) == (1, 2_000)
    assert shown == sorted(shown)
    assert shown[-1] == 1.0
    keys = [key for key, _, _ in rows]
    counted = Counter(keys)
    assert found.key is not None
    assert (found.key.least, found.key.greatest) == (min(keys), max(keys))
    assert found.key.distinct == len(counted)
    assert found.key.duplicates == 2_000 - len(counted)
    assert found.key.repeated == sum(count > 1 for count in counted.values())
    assert sum(found.key.histogram.rows) == 2_000
    ordered = sorted(counted)
    gaps = [Gap(one, other) for one, other in pairwise(ordered)]
    wide = [gap for gap in gaps if gap.width > found.key.gaps_from]
    assert found.key.gaps_count == len(wide)
    assert found.key.gaps[0] == max(gaps, key=lambda gap: gap.width)
    payloads = Counter((device, value) for _, device, value in rows)
    assert found.duplicates == 2_000 - len(payloads)
    assert found.rates is not None
    assert (sum(found.rates.rows), sum(found.rate_bytes)) == (2_000, found.bytes)
    device, value = found.columns
    assert (device.nulls, device.least, device.greatest, device.bytes) == (0, "0", "3", 16_000)
    assert (value.nulls, value.least, value.greatest, value.bytes) == (40, "0.0", "1.5", 15_680)
    assert (device.distinct, value.distinct) == (4, 7)
    assert found.bytes == device.bytes + value.bytes
    late = lateness(keys)
    assert found.late is not None
    assert found.late.late == sum(one > 0 for one in late)
    assert found.late.late_s_max == pytest.approx(max(late))
    assert dict(found.late.later_than) == {
        second: sum(one > second for one in late) for second in (1, 10, 60, 600, 3_600, 86_400)
    }
    assert sum(count for _, _, count in found.late.cells) == 2_000
    document = json.loads(json.dumps(found.to_json()))
    assert document["key"]["gaps"][0]["width"] == found.key.gaps[0].width
    assert "are late, behind something that came before them" in str(found)
    assert "2026-09-21" in str(found)
    _check_page(found, "Late data", "Keys", "Columns", "rows repeat a key")


def _check_page(found: Profile, *words: str) -> None:
    text = page(found)
    for word in words:
        assert word in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    for part in text.split("<svg")[1:]:
        ET.fromstring("<svg" + part.partition("</svg>")[0] + "</svg>")


def test_keys_without_a_gap_are_told_as_well() -> None:
    spread = Histogram(0, 1.0, (1, 1))
    key = KeyProfile("n", None, 0, 1, 0, spread, 1.0, 0, (), distinct=2, repeated=0, duplicates=0)
    found = Profile(source="a", kind="log", rows=2, seq_first=1, seq_last=2, key=key)
    assert "0 gaps between keys are wider than 1" in str(found)
    _check_page(found, "Keys: n")


def test_keys_up_to_the_last_year_have_a_page() -> None:
    """As of rows that hold until they are replaced; the last bin ends behind the greatest key."""
    first, last = 1_600_000_000 * 10**6, 253_402_300_799 * 10**6
    spread = Histogram(first, (last - first) * 35 / 4096, (1,) * 118)
    key = KeyProfile("until", 10**6, first, last, 0, spread, 1.0, 1, (Gap(first, last),))
    found = Profile(source="a", kind="log", rows=2, seq_first=1, seq_last=2, key=key)
    _check_page(found, "Keys: until", ">2020-09-13<", ">9999-12-31<")
    assert key.shown(2**60) == f"{2**60:,}"


ODD = pa.schema(
    [
        ("at", pa.timestamp("us", tz="UTC")),
        ("odd `name`.", pa.map_(pa.string(), pa.int64())),
        ("tags", pa.list_(pa.string())),
        ("raw", pa.binary()),
        ("nothing", pa.int32()),
    ]
)


@pytest.mark.slow
def test_a_log_and_its_archive_are_told_alike(spark: SparkSession, tmp_path: Path) -> None:
    """Nested values, nulls that change places, keys by a column, events by another."""
    when = datetime(2026, 11, 1, tzinfo=UTC)
    rows: list[dict[str, Any]] = [
        {"at": when, "odd `name`.": {"a": 1}, "tags": ["x", None], "raw": b"\x00\xff"},
        {"at": when + timedelta(hours=1), "odd `name`.": {"a": 1}, "tags": ["x"], "raw": b"\x00"},
        {"at": when, "odd `name`.": {"a": 1}, "tags": ["x", None], "raw": b"\x00\xff"},
        {"at": None, "odd `name`.": None, "tags": None, "raw": None},
        {"at": None, "odd `name`.": None, "tags": [], "raw": b""},
    ]
    with tm.Log(str(tmp_path / "log"), schema=ODD) as log:
        with log.publisher() as out:
            out.send(rows)
        log.archive(tmp_path / "archive")
    options: dict[str, Any] = {"key": "at", "event_time": "at"}
    for name in ("log", "archive"):
        found = profile(spark, tmp_path / name, **options)
        options["duplicates"] = False
        assert (found.rows, found.kind) == (5, "log")
        assert found.key is not None
        assert (found.key.nulls, found.key.gaps_count) == (2, 1)
        assert found.key.span(found.key.gaps[0].width) == "1 h"
        assert found.late is not None
        assert (found.late.rows, found.late.late, found.late.late_s_max) == (3, 1, 3_600.0)
        if name == "log":
            # An empty list is not null, and neither is a list of one.
            assert (found.duplicates, found.key.duplicates) == (1, 1)
        else:
            assert (found.duplicates, found.key.duplicates) == (None, None)
        odd, tags, raw, nothing = found.columns[1:]
        assert (odd.nulls, odd.least, tags.nulls, tags.distinct) == (2, None, 1, 3)
        assert (raw.least, raw.greatest, raw.bytes) == ("0x", "0x00ff", 5)
        assert (nothing.nulls, nothing.distinct, nothing.least) == (5, 0, None)
        _check_page(found, "odd `name`.")


@pytest.fixture
def clock_of_berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.slow
@pytest.mark.usefixtures("clock_of_berlin")
def test_times_are_those_of_no_machine_and_of_any_year(spark: SparkSession, tmp_path: Path) -> None:
    year_20000_us = 568_971_820_800_000_000
    table = pa.table(
        {
            "at": pa.array([0, 1_782_900_000_500_000], pa.timestamp("us", "UTC")),
            "local": pa.array([0, 1_782_900_000_500_000], pa.timestamp("us")),
            "day": pa.array([0, 20_000], pa.date32()),
            "far": pa.array([0, year_20000_us], pa.timestamp("us", "UTC")),
        }
    )
    with tm.Log(tmp_path / "log", schema=table.schema) as log, log.publisher() as out:
        out.send(table)
    found = profile(spark, tmp_path / "log", key="far")
    assert [(one.least, one.greatest) for one in found.columns] == [
        ("1970-01-01T00:00:00+00:00", "2026-07-01T10:00:00.500000+00:00"),
        ("1970-01-01T00:00:00", "2026-07-01T10:00:00.5"),
        ("1970-01-01", "2024-10-04"),
        ("1970-01-01T00:00:00+00:00", f"{year_20000_us:,} µs since 1970"),
    ]
    assert f"keys (far): 1970-01-01 00:00:00 to {year_20000_us:,}" in str(found)
    _check_page(found, "Keys: far")


@pytest.mark.slow
def test_what_cannot_be_profiled_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "log"
    tm.Log(str(path), schema=ODD).close()
    refusals: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"key": "no"}, InvalidInput, "no column 'no'; the columns are seq, time, at, odd"),
        ({"key": "raw"}, InvalidInput, "column 'raw' is binary: keys are whole numbers or times"),
        ({"event_time": "tags"}, InvalidInput, "column 'tags' is array<string>"),
        ({"event_unit": "h"}, InvalidInput, "event_unit is s, ms, us or ns"),
        ({"seqs": (9, 2)}, InvalidInput, "the least number is 9"),
    ]
    for options, kind, words in refusals:
        with pytest.raises(kind, match=words):
            profile(spark, path, **options)
    with pytest.raises(NotAQueue):
        profile(spark, tmp_path / "nothing")
    empty = profile(spark, path)
    assert (empty.rows, str(empty)) == (0, f"{path}: a log, 0 rows")
    _check_page(empty, "rows")
