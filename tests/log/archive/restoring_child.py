"""A process that restores an archive until it is killed; it says how far it has come."""

from __future__ import annotations

import sys

import tidemill as tm


def main(archive: str, log: str) -> None:
    def say(done: tm.Restored, _: int) -> None:
        sys.stdout.write(f"{done.next}\n")
        sys.stdout.flush()

    tm.restore(archive, log, on_progress=say)


if __name__ == "__main__":
    main(*sys.argv[1:])
