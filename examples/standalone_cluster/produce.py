"""Append lines of a web server to a log: python produce.py [COUNT]. One in a hundred is cut off."""

from __future__ import annotations

import random
import sys

import tidemill as tm

PATHS = ["/", "/shop", "/cart", "/static/logo.svg"]


def produce(count: int, *, seed: int = 1) -> None:
    """Append lines behind those that are there."""
    chance = random.Random(seed)
    with tm.Log("lines/") as log, log.publisher() as out:
        lines = []
        for number in range(log.ends().next, log.ends().next + count):
            status = chance.choices([200, 404, 503], [90, 8, 2])[0]
            line = (
                f"10.0.0.{chance.randrange(256)} - - [16/Nov/2026:12:{number % 60:02}:00 +0000] "
                f'"GET {chance.choice(PATHS)} HTTP/1.1" {status} {chance.randrange(10_000)}'
            )
            lines.append((line[:40] if number % 100 == 0 else line).encode())
        out.send(lines)


if __name__ == "__main__":
    produce(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000, seed=random.randrange(2**32))
