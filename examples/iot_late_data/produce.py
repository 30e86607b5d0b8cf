"""Append what a gateway receives of devices to a log: python produce.py [COUNT].

A reading is received every 200 ms, up to half a minute after it was measured. Device 3 has no
connection for an hour at a time, and sends what it measured then when it is back.
"""

from __future__ import annotations

import random
import sys

import pyarrow as pa

import tidemill as tm

SCHEMA = pa.schema(
    [
        ("device", pa.int32()),
        ("measured_ms", pa.int64()),
        ("received_ms", pa.int64()),
        ("value", pa.float64()),
    ]
)
START_MS = 1_760_000_000_000
HOUR_MS = 3_600_000


def produce(count: int, *, seed: int = 1) -> None:
    """Append readings behind those that are there; one in a hundred has no value."""
    chance = random.Random(seed)
    with tm.Log("telemetry/", schema=SCHEMA) as log, log.publisher() as out:
        first = log.ends().next
        rows = []
        for number in range(first, first + count):
            device = number % 5
            received_ms = START_MS + 200 * number
            # It was away every other quarter of an hour, and sends what it has kept.
            is_kept = device == 3 and number // 4_500 % 2 == 1
            delay_ms = chance.randrange(30_000) + (chance.randrange(HOUR_MS) if is_kept else 0)
            value = None if number % 100 == 0 else round(chance.gauss(20, 5), 2)
            rows.append(
                {
                    "device": device,
                    "measured_ms": received_ms - delay_ms,
                    "received_ms": received_ms,
                    "value": value,
                }
            )
        out.send(rows)


if __name__ == "__main__":
    produce(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, seed=random.randrange(2**32))
