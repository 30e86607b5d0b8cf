"""How a log is read: a receiver far behind, and the way of one message from send to receive.

Each in a folder and on MariaDB. The receiver that is far behind runs in a process of its own, so
that its memory is its own.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from statistics import median, quantiles

import pyarrow as pa

import tidemill as tm
from benchmarks.child import Child
from benchmarks.progress import say
from benchmarks.result import Result
from benchmarks.settings import ITEMS_PER_BATCH, VALUE_BYTES, Settings
from benchmarks.workloads.packs import server

ROWS_PER_SEND = 5 * ITEMS_PER_BATCH


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder, server(settings) as started:
        for words, address in (
            ("in a folder", str(Path(folder) / "log")),
            ("on MariaDB", started.url("bench", "log")),
        ):
            results += [*_behind(settings, words, address), *_latency(settings, words, address)]
    return results


def _behind(settings: Settings, words: str, address: str) -> list[Result]:
    rows = 10**5 if settings.quick else 10**7
    what = f"a receiver {rows:,} rows behind, {words}"
    say(what)
    values = pa.array([bytes(VALUE_BYTES)] * ROWS_PER_SEND, pa.binary())
    batch = pa.record_batch({"value": values})
    with tm.Log(address) as log, log.publisher() as out:
        for _ in range(rows // ROWS_PER_SEND):
            out.send_soon(batch)
        out.flush()
    rates, peaks = [], []
    with Child("benchmarks.log_child") as child:
        for number in range(settings.rounds):
            answer = child.ask("receive", address=address, consumer=f"reader-{number}")
            if answer["rows"] != rows:
                raise RuntimeError(f"{answer['rows']} rows came instead of {rows}")
            rates.append(answer["rows"] / answer["seconds"])
            peaks.append(answer["peak_mb"] - answer["imported_mb"])
    return [
        Result(
            what,
            median(rates),
            "rows/s",
            note=f"sent {ROWS_PER_SEND:,} rows of {VALUE_BYTES} bytes at a time",
        ),
        Result(f"{what}: memory at most, beyond imports", max(*peaks, 0.1), "MB"),
    ]


def _latency(settings: Settings, words: str, address: str) -> list[Result]:
    """One message at a time, from before `send` until a receiver of the same process has it."""
    messages = 50 if settings.quick else 2_000
    say(f"latency {words}")
    received: dict[int, float] = {}
    arrived = threading.Semaphore(0)
    with tm.Log(address) as log, log.publisher() as out:
        receiver = log.receiver("latency", start="latest")

        def receive() -> None:
            for _ in range(messages):
                batch = receiver.receive()
                if batch is None or len(batch) != 1:
                    raise RuntimeError("something else came than one message")
                received[batch.first_seq] = time.perf_counter()
                batch.ack()
                arrived.release()

        reading = threading.Thread(target=receive)
        reading.start()
        taken = []
        for _ in range(messages):
            start = time.perf_counter()
            first = out.send(bytes(VALUE_BYTES)).first
            arrived.acquire()
            taken.append(received[first] - start)
        reading.join()
    parts = quantiles(taken, n=100)
    what = f"one message from send to receive, {words}"
    return [
        Result(f"{what}: p50", parts[49] * 1e3, "ms"),
        Result(f"{what}: p99", parts[98] * 1e3, "ms"),
    ]
