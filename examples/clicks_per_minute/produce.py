"""Send clicks to a log: python produce.py [COUNT]. Time goes on by a second every ten clicks."""

from __future__ import annotations

import random
import sys

import pyarrow as pa

import tidemill as tm

SCHEMA = pa.schema([("user", pa.string()), ("page", pa.string()), ("at_ms", pa.int64())])
START_MS = 1_760_000_000_000


def produce(count: int, *, seed: int = 1) -> None:
    """Append clicks behind those that are there; one in fifty has no user, or no time."""
    chance = random.Random(seed)
    with tm.Log("clicks/", schema=SCHEMA) as log, log.publisher() as out:
        first = log.ends().next
        rows = []
        for number in range(first, first + count):
            click = {
                "user": f"user-{chance.randrange(100)}",
                "page": chance.choice(["/", "/shop", "/about"]),
                "at_ms": START_MS + 100 * number - chance.randrange(5_000),  # a little late
            }
            if number % 50 == 0:
                click[chance.choice(["user", "at_ms"])] = None
            rows.append(click)
        out.send(rows)


if __name__ == "__main__":
    produce(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, seed=random.randrange(2**32))
