"""Moving items from queue to queue: copied, against the floor; handed over, at growing sizes."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median

from xxhash import xxh3_64_intdigest

import tidemill as tm
from benchmarks import data
from benchmarks.ours import Sync, frame_bytes
from benchmarks.progress import say
from benchmarks.result import Result, Target
from benchmarks.rounds import Contestant, interleave, settle
from benchmarks.settings import ITEMS_PER_BATCH, Settings
from tidemill.gateway.disk_floor import PIECE_BYTES, POSITION_BYTES
from tidemill.limits import SHOVEL_BYTES

_COPY_TARGET = Target("at least", 5e6, of="ours")
_HANDOVER_TARGET = Target("below", 0.5, of="ours")


def run(settings: Settings) -> list[Result]:
    results: list[Result] = []
    syncs: tuple[Sync, ...] = ("none", "full")
    for sync in syncs:
        for order in ("ascending", "shuffled"):
            with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
                results += _copy(Path(folder), settings, sync, order)
    return results + _hand_over(settings)


class _Shovel:
    """Takes turns at filling one queue and shoveling it into another, which is never empty."""

    name = "tidemill"

    def __init__(self, folder: Path, *, sync: Sync, batches: int, in_order: bool) -> None:
        self._source = tm.PriorityQueue(folder / "source", sync=sync)
        self._target = tm.PriorityQueue(folder / "target", sync=sync)
        self._batches = batches
        self._in_order = in_order
        self._next_key = 0

    def turn(self) -> dict[str, float]:
        order = list(range(self._batches)) if self._in_order else data.shuffled(self._batches)
        for number in order:
            self._source.push(data.ascending(self._next_key + number * ITEMS_PER_BATCH))
        self._next_key += self._batches * ITEMS_PER_BATCH
        self._target.push([(-1, b"so that items are copied")])
        items = self._batches * ITEMS_PER_BATCH
        settle()
        start, start_cpu = time.perf_counter(), time.process_time()
        moved = self._source.shovel(self._target)
        seconds, cpu_s = time.perf_counter() - start, time.process_time() - start_cpu
        if moved != items or len(self._source) or len(self._target) != items + 1:
            raise RuntimeError(f"{moved} of {items} items were moved")
        self._target.clear()
        return {"move": seconds / items, "cpu": cpu_s / items}

    def close(self) -> None:
        self._source.close()
        self._target.close()


class _CopyFloor:
    """The least that copying takes: each frame is read, checked and written; where it is synced,
    so is each chunk, and then the 128 bytes that take it from the source.
    """

    name = "floor"

    def __init__(self, folder: Path, *, write_bytes: int, writes: int, sync: bool) -> None:
        folder.mkdir()
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._files = [os.open(folder / name, flags, 0o600) for name in ("from", "to", "position")]
        self._write_bytes = write_bytes
        self._writes = writes
        self._sync = sync
        self._allocated = self._end = 0
        os.pwrite(self._files[2], bytes(4096), 0)

    def turn(self) -> dict[str, float]:
        source, target, position = self._files
        length = self._write_bytes
        checks = []
        for number in range(self._writes):
            buffer = data.random_bytes(length)
            checks.append(xxh3_64_intdigest(buffer))
            os.pwrite(source, buffer, number * length)
        record = data.random_bytes(POSITION_BYTES)
        settle()
        per_chunk = max(SHOVEL_BYTES // length, 1)
        start = time.perf_counter()
        for number, check in enumerate(checks, 1):
            buffer = os.pread(source, length, (number - 1) * length)
            if xxh3_64_intdigest(buffer) != check:
                raise OSError("the disk gave back other bytes than were written")
            if self._end + length > self._allocated:
                os.posix_fallocate(target, self._allocated, PIECE_BYTES)
                self._allocated += PIECE_BYTES
            os.pwrite(target, buffer, self._end)
            self._end += length
            if self._sync and (number % per_chunk == 0 or number == self._writes):
                os.fdatasync(target)
                os.pwrite(position, record, 0)
                os.fdatasync(position)
        seconds = time.perf_counter() - start
        return {"move": seconds / (self._writes * ITEMS_PER_BATCH)}

    def close(self) -> None:
        for file in self._files:
            os.close(file)


def _copy(folder: Path, settings: Settings, sync: Sync, order: str) -> list[Result]:
    batches = 20 if settings.quick else 500
    write_bytes = frame_bytes(folder)
    contestants: list[Contestant] = [
        _Shovel(folder / "ours", sync=sync, batches=batches, in_order=order == "ascending"),
        _CopyFloor(folder / "floor", write_bytes=write_bytes, writes=batches, sync=sync == "full"),
    ]
    what = f"shovel by copy, {order}, sync {sync}"
    medians = interleave(what, contestants, settings.rounds)
    conditions = {
        "operation": f"shovel of {batches} frames of {ITEMS_PER_BATCH} items, {write_bytes} bytes "
        "each, into a queue that is not empty"
    }
    return [
        Result(
            what,
            1 / medians["tidemill"]["move"],
            "items/s",
            1 / medians["floor"]["move"],
            f"floor: pread + xxh3 + pwrite{' + 2 fdatasync per 8 MiB' if sync == 'full' else ''}",
            None if settings.quick else _COPY_TARGET,
            conditions=conditions,
        ),
        # What it takes of one core, whoever else uses the machine; the kernel's part is in it.
        Result(
            f"{what}: per second of CPU time",
            1 / medians["tidemill"]["cpu"],
            "items/s",
            target=None if settings.quick else _COPY_TARGET,
            conditions=conditions,
        ),
    ]


def _hand_over(settings: Settings) -> list[Result]:
    """How long it takes to shovel so many items back and forth between empty queues."""
    scales = [10**4, 10**5] if settings.quick else [10**5, 10**6, 10**7]
    results: list[Result] = []
    for items in scales:
        seconds, segments = _time_handovers(settings, items)
        first = results[0].ours if results else None
        results.append(
            Result(
                f"shovel by handing over {items:,} items",
                median(seconds),
                "s",
                first,
                f"the same of {scales[0]:,} items" if first else "",
                None if settings.quick else _HANDOVER_TARGET,
                conditions={
                    "operation": f"shovel of {segments} segments into an empty queue, sync full",
                    "seconds": " ".join(f"{one:.4f}" for one in seconds),
                },
            )
        )
    return results


def _time_handovers(settings: Settings, items: int) -> tuple[list[float], int]:
    # Small segments in a quick run, so that there is something to hand over.
    segment_bytes = 64 * 1024 if settings.quick else None
    seconds: list[float] = []
    with tempfile.TemporaryDirectory(dir=settings.folder) as folder:
        paths = [Path(folder) / name for name in ("a", "b")]
        with tm.PriorityQueue(paths[0], sync="none", segment_bytes=segment_bytes) as queue:
            for first in range(0, items, ITEMS_PER_BATCH):
                queue.push(data.ascending(first, min(ITEMS_PER_BATCH, items - first)))
        source, target = (tm.PriorityQueue(path, segment_bytes=segment_bytes) for path in paths)
        segments = source.stats().segments
        for number in range(settings.rounds):
            say(f"shovel by handing over {items:,} items: round {number + 1}")
            settle()
            start_s = time.perf_counter()
            moved = source.shovel(target)
            seconds.append(time.perf_counter() - start_s)
            if moved != items or len(target) != items or len(source):
                raise RuntimeError(f"{moved} of {items} items were moved")
            source, target = target, source
        if source.pop(1).keys.to_pylist() != [0]:
            raise RuntimeError("the items are no longer what they were")
        source.close()
        target.close()
    return seconds, segments
