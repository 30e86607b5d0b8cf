"""Receives from a log in a process of its own: all that is there, or each message as it comes."""

from __future__ import annotations

import time

import tidemill as tm
from benchmarks.child import Answer, serve
from benchmarks.memory import peak_mb


def receive(address: str, consumer: str) -> Answer:
    """Receive and ack everything, batch by batch as a user would."""
    imported_mb = peak_mb()
    rows = 0
    start = time.perf_counter()
    with tm.Log(address) as log, log.receiver(consumer, follow=False) as receiver:
        for batch in receiver:
            if batch.first_seq != rows + 1:
                raise RuntimeError(f"row {batch.first_seq} came after row {rows}")
            rows += len(batch)
            batch.ack()
    seconds = time.perf_counter() - start
    return {"rows": rows, "seconds": seconds, "imported_mb": imported_mb, "peak_mb": peak_mb()}


def receive_each(address: str, count: int) -> Answer:
    """Seconds from the send of each new message to its receipt; answers once when it is ready."""
    with tm.Log(address) as log, log.receiver("latency", start="latest") as receiver:
        receiver.receive(wait_s=0)
        print('{"ready": true}', flush=True)
        return {"latencies_s": latencies(receiver, count)}


def latencies(receiver: tm.Receiver, count: int) -> list[float]:
    """Of the next messages, each of which says when it was sent."""
    found: list[float] = []
    while len(found) < count:
        batch = receiver.receive()
        now_ns = time.monotonic_ns()
        if batch is None:
            raise RuntimeError("the log ended")
        found += [(now_ns - int.from_bytes(row, "little")) / 1e9 for row in batch.rows()]
        batch.ack()
    receiver.flush()
    return found


def stamp() -> bytes:
    """A message that says when it is sent, by the clock that all processes share."""
    return time.monotonic_ns().to_bytes(8, "little")


if __name__ == "__main__":
    serve({"receive": receive, "receive_each": receive_each})
