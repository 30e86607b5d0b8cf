"""What the devices measure, the same in every run.

Reading k is of device k mod 8, a fixed time after reading k - 1. It arrives up to 20 seconds late;
one device has no connection for a while, and sends what it measured then when it is back. All of a
reading follows from its number, in whole numbers, so that whoever reads it can tell whether it is
right, and sums are exact.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemill.gateway.demo.telemetry import DEVICES, METRICS, START_NS, TIME_NS, Telemetry

Numbers: TypeAlias = npt.NDArray[np.int64]

SCHEMA = pa.schema([("device", pa.int32()), ("metric", pa.string()), ("value", pa.float64())])
WINDOW_S = 10
WINDOWS = TIME_NS // 10**9 // WINDOW_S
HEARTBEAT = "heartbeat"
HEARTBEAT_NS = START_NS + TIME_NS + 3_600_000_000_000  # long after the last reading
NO_VALUE, OUT_OF_RANGE = "no value", "out of range"
_NO_VALUE_EVERY, _OUT_OF_RANGE_EVERY = 997, 1_499

# In hundredths: where a metric lies, and how far it goes up and down.
_BASES = np.array([2_000, 95_000, 5_500])
_SWINGS = np.array([600, 300, 1_500])
_PERIOD_NS = TIME_NS // 3
_NOISE = 400


class Readings:
    """So many readings of all devices.

    >>> readings = Readings(100_000)
    >>> readings.table(np.array([0, 1])).column("value").to_pylist()
    [None, 24.55]
    """

    def __init__(self, items: int) -> None:
        self.items = items
        self._telemetry = Telemetry(items)

    def batches(self, device: int) -> list[Numbers]:
        """The numbers of a device's readings, batch by batch as they are sent."""
        return self._telemetry.batches(device)

    def keys(self, numbers: Numbers) -> Numbers:
        """When they were measured, in ns."""
        return self._telemetry.keys(numbers)

    def numbers(self, keys: Numbers) -> Numbers:
        """The numbers of readings that were measured then; -1 for those that never were."""
        return self._telemetry.numbers(keys)

    def table(self, numbers: Numbers) -> pa.Table:
        """Readings as a device sends them."""
        values = self.hundredths(numbers) / 100.0
        values[self.is_out_of_range(numbers)] = 9_999.0
        return pa.table(
            {
                "ts": pa.array(self.keys(numbers)).cast(pa.timestamp("ns", tz="UTC")),
                "device": pa.array(numbers % DEVICES, pa.int32()),
                "metric": METRICS.take(pa.array(self.metric(numbers))),
                "value": pa.array(values, mask=self.is_without_value(numbers)),
            }
        )

    def heartbeat(self, device: int) -> pa.Table:
        """What a device says when it has nothing more to send."""
        return pa.table(
            {
                "ts": pa.array([HEARTBEAT_NS + device]).cast(pa.timestamp("ns", tz="UTC")),
                "device": pa.array([device], pa.int32()),
                "metric": [HEARTBEAT],
                "value": [0.0],
            }
        )

    def metric(self, numbers: Numbers) -> Numbers:
        """Which metric they are of, as a place in `METRICS`."""
        return numbers // DEVICES % len(METRICS)

    def hundredths(self, numbers: Numbers) -> Numbers:
        """What was measured, in hundredths, had it not gone wrong."""
        metric = self.metric(numbers)
        at = self.keys(numbers) - START_NS
        at = at + (numbers % DEVICES) * (_PERIOD_NS // 40) + metric * (_PERIOD_NS // 5)
        # A wave made of straight lines: it goes up and down by the swing of the metric.
        share = np.abs(at % _PERIOD_NS * 2 // (_PERIOD_NS // 1_000) - 1_000)
        noise = numbers * 2_654_435_761 % (2 * _NOISE + 1) - _NOISE
        swing = _SWINGS[metric] * (share - 500) // 500
        return _BASES[metric] + swing + noise * _SWINGS[metric] // 1_000

    def is_without_value(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Whether the sensor gave nothing."""
        return numbers % _NO_VALUE_EVERY == 0

    def is_out_of_range(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Whether it gave what cannot be."""
        return (numbers % _OUT_OF_RANGE_EVERY == 0) & (numbers % _NO_VALUE_EVERY != 0)

    def is_good(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        return (numbers % _NO_VALUE_EVERY != 0) & (numbers % _OUT_OF_RANGE_EVERY != 0)
