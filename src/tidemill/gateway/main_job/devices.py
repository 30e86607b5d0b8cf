"""The devices: each pushes to a queue of its own, and knows what was acknowledged.

As a process of its own, `python -m tidemill.gateway.main_job.devices`, they push until so many
readings are acknowledged, then the process kills itself in the middle of what is under way.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import tidemill as tm
from tidemill.gateway.demo.devices import Ack, read_acks, until_death
from tidemill.gateway.demo.telemetry import DEVICES
from tidemill.gateway.main_job.processes import child
from tidemill.gateway.main_job.readings import SCHEMA, Numbers, Readings

Batches = Mapping[int, Sequence[tuple[int, Numbers]]]  # device → (number of the batch, readings)


def queue_folder(folder: Path, device: int) -> Path:
    """Where a device keeps what it has measured."""
    return folder / "edge" / f"device-{device}"


def push_all(
    folder: Path, readings: Readings, batches: Batches, acknowledge: Callable[[Ack], None]
) -> None:
    """Push, each device in a thread of its own, each batch synced; raises what stopped any."""
    failures: list[BaseException] = []

    def work(device: int) -> None:
        try:
            for number, some in batches[device]:
                receipt = queues[device].push(readings.table(some), key="ts")
                acknowledge(Ack(device, number, receipt.count, time.monotonic()))
        except tm.TidemillError as error:
            failures.append(error)

    with ExitStack() as stack:
        queues = {
            device: stack.enter_context(
                tm.PriorityQueue(queue_folder(folder, device), schema=SCHEMA)
            )
            for device in batches
        }
        threads = [threading.Thread(target=work, args=(device,)) for device in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def missing(
    folder: Path, readings: Readings, acknowledged: set[tuple[int, int]]
) -> dict[int, list[tuple[int, Numbers]]]:
    """What each device still has to push after the crash.

    Of a push that was not acknowledged a device does not know whether it arrived. One of its
    readings tells: a push is there as a whole, or not at all.
    """
    rest: dict[int, list[tuple[int, Numbers]]] = {}
    for device in range(DEVICES):
        with tm.PriorityQueue(queue_folder(folder, device), schema=SCHEMA) as queue:
            rest[device] = [
                (number, some)
                for number, some in enumerate(readings.batches(device))
                if (device, number) not in acknowledged and not _holds(queue, readings, some)
            ]
    return rest


def _holds(queue: tm.PriorityQueue, readings: Readings, some: Numbers) -> bool:
    key = int(readings.keys(some[:1])[0])
    return any(batch.num_rows for batch in queue.scan(keys=(key, key)))


@contextmanager
def dying_devices(folder: Path, items: int, die_at: int) -> Iterator[Iterator[Ack]]:
    """The devices as a process that kills itself; gives what it acknowledges until then."""
    reading, writing = os.pipe()
    with open(reading, "rb", closefd=True) as pipe:
        module = "tidemill.gateway.main_job.devices"
        arguments = [str(folder), str(items), str(die_at), str(writing)]
        with child(["-m", module, *arguments], pass_fds=[writing]) as process:
            os.close(writing)
            yield read_acks(pipe.fileno())
            _, error = process.communicate()
    if process.returncode != -signal.SIGKILL:
        raise tm.SurroundingsError(f"the devices could not push: {error.strip()}")


def main(folder: str, items: int, die_at: int, pipe: int) -> None:
    """Push until so many readings are acknowledged, then die."""
    readings = Readings(items)
    batches = {device: list(enumerate(readings.batches(device))) for device in range(DEVICES)}
    push_all(Path(folder), readings, batches, until_death(pipe, die_at))


if __name__ == "__main__":
    try:
        main(sys.argv[1], *map(int, sys.argv[2:]))
    except tm.TidemillError as failure:
        sys.exit(str(failure))
