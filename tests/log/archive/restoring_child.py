"""A process that restores an archive until it is killed; it says how far it has come, and behind so
many steps waits for a line before each other: it shall not be done before.
"""

from __future__ import annotations

import sys

import tidemill as tm


def main(archive: str, log: str, steps: str) -> None:
    left = int(steps)

    def say(done: tm.Restored, _: int) -> None:
        nonlocal left
        sys.stdout.write(f"{done.next}\n")
        sys.stdout.flush()
        left -= 1
        if left <= 0:
            sys.stdin.readline()

    tm.restore(archive, log, on_progress=say)


if __name__ == "__main__":
    main(*sys.argv[1:])
