"""Send visits of a web site to a log: python produce.py [COUNT]. There is one every 20 seconds.

Of forty visitors, every fourth a guest, a third is there for an hour, then another third.
"""

from __future__ import annotations

import random
import sys

import pyarrow as pa

import tidemill as tm

SCHEMA = pa.schema([("user", pa.string()), ("page", pa.string()), ("at_ms", pa.int64())])
START_MS = 1_760_000_000_000
PAGES = ["/", "/shop", "/cart", "/logout"]


def produce(count: int, *, seed: int = 1) -> None:
    """Append visits behind those that are there, some of them a minute late."""
    chance = random.Random(seed)
    with tm.Log("visits/", schema=SCHEMA) as log, log.publisher() as out:
        first = log.ends().next
        rows = []
        for number in range(first, first + count):
            user = 3 * chance.randrange(13) + number // 180 % 3
            late_ms = chance.randrange(60_000)
            rows.append(
                {
                    "user": f"guest-{user}" if user % 4 == 0 else f"member-{user}",
                    "page": chance.choices(PAGES, [5, 5, 2, 1])[0],
                    "at_ms": START_MS + 20_000 * number - late_ms,
                }
            )
        out.send(rows)


if __name__ == "__main__":
    produce(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, seed=random.randrange(2**32))
