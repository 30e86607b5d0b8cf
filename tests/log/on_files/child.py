"""A process that publishes to a log, or receives from it, until it is killed.

    python -m tests.log.on_files.child publish PATH FIRST_NUMBER
    python -m tests.log.on_files.child receive PATH

Each line that it prints is written at once, and says what was confirmed to it.
"""

from __future__ import annotations

import os
import sys

import tidemill as tm

ROWS_PER_BATCH = 7


def rows_of(number: int) -> list[bytes]:
    """What is sent under a number: never the same twice, one to five rows."""
    return [b"%d.%d" % (number, row) for row in range(number % 5 + 1)]


def publish(path: str, number: int) -> None:
    with tm.Log(path, segment_bytes=64 * 1024) as log, log.publisher(producer="child") as out:
        say("ready")
        while True:
            receipt = out.send(rows_of(number), number=number)
            say(f"{number} {receipt.first} {receipt.last}")
            number += 1


def receive(path: str) -> None:
    with tm.Log(path) as log, log.receiver("child", rows_max=ROWS_PER_BATCH) as receiver:
        say(f"ready {receiver.pointer}")
        for batch in receiver:
            say(f"{batch.first_seq} " + " ".join(row.decode() for row in batch.rows()))
            batch.ack()


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], int(sys.argv[3]))
    else:
        receive(sys.argv[2])
