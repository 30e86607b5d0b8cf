"""The devices: threads that push their events and say what was acknowledged.

As a process of its own, `python -m tidemill.gateway.demo.devices`, they push into a new queue, tell
their parent through a pipe of each push that returned, and when a given number of events is
acknowledged the process kills itself, in the middle of the pushes that are then under way.
"""

from __future__ import annotations

import os
import queue
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import tidemill as tm
from tidemill.gateway.demo.telemetry import DEVICES, SCHEMA, Numbers, Telemetry

_ACK = struct.Struct("<iiid")


class Ack(NamedTuple):
    """A push that returned."""

    device: int
    batch: int
    rows: int
    at_s: float  # of the monotonic clock, which all processes share


def push_batches(
    target: tm.PriorityQueue,
    telemetry: Telemetry,
    batches: dict[int, list[tuple[int, Numbers]]],  # device → (number of the batch, its events)
    acknowledge: Callable[[Ack], None],
) -> None:
    """Push, each device in a thread of its own; raises what stopped any of them."""
    failures: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def work(device: int) -> None:
        try:
            for batch, numbers in batches[device]:
                receipt = target.push(telemetry.events(numbers), key="ts")
                acknowledge(Ack(device, batch, receipt.count, time.monotonic()))
        except tm.TidemillError as error:
            failures.put(error)

    threads = [threading.Thread(target=work, args=(device,)) for device in batches]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not failures.empty():
        raise failures.get()


def read_acks(pipe: int) -> Iterator[Ack]:
    """What a process of devices acknowledged, until it ends."""
    rest = b""
    while data := os.read(pipe, 1 << 16):
        rest += data
        whole = len(rest) - len(rest) % _ACK.size
        for fields in _ACK.iter_unpack(rest[:whole]):
            yield Ack(*fields)
        rest = rest[whole:]


def until_death(pipe: int, die_at: int) -> Callable[[Ack], None]:
    """Tells the parent what is acknowledged, and kills this process once that is so many events."""
    lock = threading.Lock()
    acknowledged = 0

    def acknowledge(ack: Ack) -> None:
        nonlocal acknowledged
        # Small writes to a pipe are whole. The parent has this one whatever happens next.
        os.write(pipe, _ACK.pack(*ack))
        with lock:
            acknowledged += ack.rows
            if acknowledged >= die_at:
                os.kill(os.getpid(), signal.SIGKILL)

    return acknowledge


def main(path: str, items: int, die_at: int, pipe: int) -> None:
    """Push into a new queue until so many events are acknowledged, then die."""
    telemetry = Telemetry(items)
    batches = {device: list(enumerate(telemetry.batches(device))) for device in range(DEVICES)}
    with tm.PriorityQueue(path, schema=SCHEMA) as target:
        target.fork("audit")
        os.write(pipe, _ACK.pack(-1, -1, 0, time.monotonic()))  # of nothing: this is the start
        push_batches(target, telemetry, batches, until_death(pipe, die_at))


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except tm.TidemillError as failure:
        sys.exit(str(failure))
