"""A receiver far behind, in a folder and on MariaDB: how fast it catches up, in how much memory.

Each time in a fresh process, so that its memory is its own.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import tidemill as tm
from benchmarks import data
from benchmarks.child import Answer, Child
from benchmarks.progress import say
from benchmarks.result import Result
from benchmarks.rounds import settle
from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES, Settings
from benchmarks.workloads.packs import server
from tests.services.mariadb import MariaDB

ROWS_PER_SEND = 5 * ITEMS_PER_BATCH


def run(settings: Settings) -> list[Result]:
    rows = 10**6 if settings.quick else 10**7
    results: list[Result] = []
    addresses: dict[str, str] = {}  # by what is measured
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=settings.folder))
        what = f"a receiver {rows:,} rows behind"
        addresses[f"{what}, in a folder"] = str(Path(folder) / "log")
        if (reason := MariaDB.missing()) is None:
            started = stack.enter_context(server(settings))
            addresses[f"{what}, on MariaDB"] = started.url("bench", "log")
        else:
            results.append(Result(f"{what}, on MariaDB", None, "rows/s", note=reason))
        for address in addresses.values():
            _fill(address, rows)
        found: dict[str, list[Answer]] = {name: [] for name in addresses}
        for number in range(settings.rounds):
            say(f"{what}: round {number + 1} of {settings.rounds}")
            for name, address in addresses.items():
                found[name].append(_receive(address, f"reader-{number}", rows))
    for name, answers in found.items():
        results += _judge(name, answers)
    return results


def _fill(address: str, rows: int) -> None:
    with tm.Log(address) as log, log.publisher() as out:
        for _ in range(rows // ROWS_PER_SEND):
            out.send_soon(data.ascending(0, ROWS_PER_SEND).select(["value"]))
        out.flush()
        if log.ends().next != rows + 1:
            raise RuntimeError(f"{rows} rows were sent, and the log has {log.ends()}")


def _receive(address: str, consumer: str, rows: int) -> Answer:
    settle()
    with Child("benchmarks.log_child") as child:
        answer = child.ask("receive", address=address, consumer=consumer)
    if answer["rows"] != rows:
        raise RuntimeError(f"{answer['rows']} rows came instead of {rows}")
    return answer


def _judge(what: str, answers: list[Answer]) -> list[Result]:
    conditions = {
        "operation": f"rows of {VALUE_BYTES} bytes, sent {ROWS_PER_SEND:,} at a time; received as "
        "columns and acked; opening the log included",
        "memory": "VmHWM of a fresh process",
    }
    rate = median(one["rows"] / one["seconds"] for one in answers)
    peak_mb = max(one["peak_mb"] for one in answers)
    beyond_mb = max(0.1, *(one["peak_mb"] - one["imported_mb"] for one in answers))
    return [
        Result(what, rate, "rows/s", conditions=conditions),
        Result(f"{what}: peak resident memory", peak_mb, "MB", conditions=conditions),
        Result(f"{what}: memory at most, beyond imports", beyond_mb, "MB", conditions=conditions),
    ]
