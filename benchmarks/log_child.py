"""Receives all rows of a log, in a process of its own."""

from __future__ import annotations

import time

import tidemill as tm
from benchmarks.child import Answer, serve
from benchmarks.memory import peak_mb


def receive(address: str, consumer: str) -> Answer:
    imported_mb = peak_mb()
    rows = 0
    start = time.perf_counter()
    with tm.Log(address) as log, log.receiver(consumer, follow=False) as receiver:
        for batch in receiver:
            rows += len(batch)
            batch.ack()
    seconds = time.perf_counter() - start
    return {"rows": rows, "seconds": seconds, "imported_mb": imported_mb, "peak_mb": peak_mb()}


if __name__ == "__main__":
    serve({"receive": receive})
