"""The events of the demonstration, the same in every run.

Event k was taken by device k mod 8, a fixed time after event k - 1. It arrives up to 20 seconds
late; and one device has no connection for a while, and sends what it took then when it is back. All
that an event holds follows from its number, so that whoever reads it can tell whether it is right.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers: TypeAlias = npt.NDArray[np.int64]

DEVICES = 8
BATCH_ROWS = 10_000
OFFLINE_DEVICE = 2
OFFLINE_FROM, OFFLINE_TO = 0.35, 0.55  # of all the time there is

START_NS = 1_767_225_600_000_000_000  # 2026-01-01, as good as any
TIME_NS = 600_000_000_000  # events are taken for ten minutes
LATE_NS_MAX = 20_000_000_000

SCHEMA = pa.schema([("device", pa.int32()), ("metric", pa.string()), ("value", pa.float64())])
METRICS = pa.array(["temperature", "pressure", "humidity"])


class Telemetry:
    """So many events of all devices.

    >>> telemetry = Telemetry(100_000)
    >>> len(telemetry.batches(0)), telemetry.events(telemetry.batches(0)[0]).num_rows
    (2, 10000)
    """

    def __init__(self, items: int) -> None:
        self.items = items
        self._spacing_ns = max(TIME_NS // items, 1)

    def batches(self, device: int) -> list[Numbers]:
        """The numbers of a device's events, batch by batch as they arrive."""
        numbers = np.arange(device, self.items, DEVICES, dtype=np.int64)
        taken_ns = self.keys(numbers) - START_NS
        late_ns = np.random.default_rng(seed=device).integers(0, LATE_NS_MAX, len(numbers))
        if device == OFFLINE_DEVICE:
            from_ns, to_ns = int(OFFLINE_FROM * TIME_NS), int(OFFLINE_TO * TIME_NS)
            is_offline = (taken_ns >= from_ns) & (taken_ns < to_ns)
            late_ns[is_offline] += to_ns - taken_ns[is_offline]
        arrived = numbers[np.argsort(taken_ns + late_ns, kind="stable")]
        return [arrived[at : at + BATCH_ROWS] for at in range(0, len(arrived), BATCH_ROWS)]

    def events(self, numbers: Numbers) -> pa.Table:
        """The events of these numbers, as a device sends them."""
        return pa.table(
            {
                "ts": pa.array(self.keys(numbers)).cast(pa.timestamp("ns", tz="UTC")),
                "device": pa.array(numbers % DEVICES, pa.int32()),
                "metric": METRICS.take(pa.array(numbers // DEVICES % len(METRICS))),
                "value": pa.array(_values(numbers)),
            }
        )

    def keys(self, numbers: Numbers) -> Numbers:
        """When the events were taken."""
        return START_NS + numbers * self._spacing_ns

    def numbers(self, keys: Numbers) -> Numbers:
        """The numbers of the events that were taken then; -1 for those that never were."""
        numbers, rest = np.divmod(keys - START_NS, self._spacing_ns)
        is_event = (rest == 0) & (numbers >= 0) & (numbers < self.items)
        return np.where(is_event, numbers, -1)

    def are_right(self, numbers: Numbers, events: pa.RecordBatch) -> bool:
        """Whether events that came out hold what they held when they were taken."""
        expected = self.events(numbers)
        return all(
            pc.all(pc.equal(events.column(name), expected.column(name).combine_chunks())).as_py()
            for name in SCHEMA.names
        )


def _values(numbers: Numbers) -> npt.NDArray[np.float64]:
    # By whole numbers, so that every processor comes to exactly the same result.
    return (numbers * 2_654_435_761 % 4_001) / 100.0
