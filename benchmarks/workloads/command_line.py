"""`tidemill push` of files, on one core: whole commands from start to end, Python's own start
included, against a process that does nothing but read the same file with pyarrow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave
from benchmarks.settings import Settings
from tidemill.gateway.rows.json_text import encode_ndjson

_START_US = 1_767_225_600_000_000  # 2026-01-01
_SPACING_US = 1_000
_LATE_US_MAX = 60_000_000  # an event that is late comes up to a minute after its time
_TARGETS = {"parquet": 5_000_000, "ndjson": 300_000}

_READ_PARQUET = """
import sys, pyarrow.parquet as pq
file = pq.ParquetFile(sys.argv[1], pre_buffer=False, buffer_size=1 << 20)
print(sum(b.num_rows for b in file.iter_batches(batch_size=1 << 18, use_threads=False)))
"""
_READ_NDJSON = """
import sys, pyarrow.json as json
options = json.ReadOptions(use_threads=False, block_size=1 << 23)
print(sum(b.num_rows for b in json.open_json(sys.argv[1], options)))
"""


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    sizes = {"parquet": 10_000_000, "ndjson": 2_000_000}
    for kind, rows in sizes.items():
        for is_late in (False, True):
            count = rows // 50 if settings.quick else rows
            with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
                results.append(_measure(Path(folder), settings, kind, count, is_late=is_late))
    return results


def _measure(folder: Path, settings: Settings, kind: str, rows: int, *, is_late: bool) -> Result:
    order = "up to a minute late" if is_late else "in order of time"
    what = f"tidemill push, {kind}, {order}"
    say(f"{what}: writing {rows:,} rows")
    path = folder / f"events.{kind}"
    write_events(path, rows, is_late=is_late)
    command = [sys.executable, "-m", "tidemill.gateway.command_line", "push"]
    reader = _READ_PARQUET if kind == "parquet" else _READ_NDJSON
    contestants: list[Contestant] = [
        _Process("tidemill", folder, [*command, "{queue}", "--from", str(path), *_OPTIONS], rows),
        _Process("pyarrow", folder, [sys.executable, "-c", reader, str(path)], rows),
    ]
    medians = interleave(what, contestants, settings.rounds)
    return Result(
        what,
        1 / medians["tidemill"]["rows"],
        "rows/s",
        1 / medians["pyarrow"]["rows"],
        "pyarrow alone, reading the file",
        Target("at least", _TARGETS[kind], of="ours"),
        conditions={
            "operation": f"{rows} rows of ts, sensor, reading; key ts; sync full; a new folder",
            "file": f"{path.suffix[1:]}, {rows} rows",
            "cores": "1, by affinity; the start of Python included",
        },
    )


_OPTIONS = ("--key", "ts", "--json")


class _Process:
    """A command that is timed from outside, on one core."""

    def __init__(self, name: str, folder: Path, command: list[str], rows: int) -> None:
        self.name = name
        self._folder = folder
        self._command = command
        self._rows = rows

    def turn(self) -> dict[str, float]:
        with tempfile.TemporaryDirectory(dir=self._folder) as scratch:
            queue = str(Path(scratch) / "queue")
            command = [queue if part == "{queue}" else part for part in self._command]
            core = {min(os.sched_getaffinity(0))}
            start_s = time.perf_counter()
            process = subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment())
            os.sched_setaffinity(process.pid, core)
            out, _ = process.communicate()
            passed_s = time.perf_counter() - start_s
        found = json.loads(out)
        done = found["pushed"] if isinstance(found, dict) else found
        if process.returncode or done != self._rows:
            raise RuntimeError(f"{self.name} was to do {self._rows} rows, and did {done}")
        return {"rows": passed_s / self._rows}

    def close(self) -> None:
        pass


def _environment() -> dict[str, str]:
    """As after an ordinary install: Python keeps what it compiled, and compiles it once."""
    return {name: v for name, v in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def write_events(path: Path, rows: int, *, is_late: bool) -> None:
    """Telemetry as a file, in the order of arrival."""
    random = np.random.default_rng(seed=7)
    taken_us = _START_US + _SPACING_US * np.arange(rows)
    if is_late:
        taken_us = taken_us[np.argsort(taken_us + random.integers(0, _LATE_US_MAX, rows))]
    events = pa.table(
        {
            "ts": pa.array(taken_us, pa.timestamp("us", tz="UTC")),
            "sensor": pa.array(random.integers(0, 100, rows), pa.int32()),
            "reading": pa.array(random.normal(20.0, 5.0, rows)),
        }
    )
    if path.suffix == ".parquet":
        pq.write_table(events, path)
        return
    with open(path, "wb") as file:
        for batch in events.to_batches(max_chunksize=100_000):
            for text in encode_ndjson(batch, binary="utf8"):
                file.write(text)
