"""A process that stages and commits numbered transactions until it is killed.

    python -m tests.transactions.child (queue|log|mysql) ADDRESS FIRST_NUMBER

It says the number of each before it begins, as Spark notes a batch before it runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.transactions.targets import FileLogTarget, MySQLTarget, QueueTarget, Target
from tidemill.files.staging.transaction import Transaction


def rows_of(number: int, partition: int) -> list[str]:
    return [f"{number:05}.{partition}.{row}" for row in range(number % 3 + 1)]


def reached(kind: str, address: str) -> Target:
    """What is there already, without making it."""
    target: Target
    if kind == "mysql":
        target = MySQLTarget.__new__(MySQLTarget)
        target.url = address
    else:
        target = (QueueTarget if kind == "queue" else FileLogTarget).__new__(
            QueueTarget if kind == "queue" else FileLogTarget
        )
        target.path = Path(address)
    return target


def main(kind: str, address: str, number: int) -> None:
    target = reached(kind, address)
    while True:
        os.write(1, f"{number}\n".encode())
        parts = [target.stage(partition, rows_of(number, partition)) for partition in range(2)]
        target.staging().commit(Transaction("load", number), parts)
        number += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
