"""Logs of numbers, and what pipelines made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

import tidemill as tm

NUMBERS = pa.schema([("n", pa.int64())])


def send(folder: Path, numbers: range | list[int | None]) -> None:
    """Append numbers to a log, in one send."""
    with tm.Log(folder, schema=NUMBERS) as log, log.publisher() as out:
        out.send(pa.table({"n": pa.array(numbers, pa.int64())}))


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All rows of a log."""
    with tm.Log(folder) as log:
        first, after = log.ends()
        return log.read(first, rows_max=max(after - first, 1)).rows()


def numbers_of(folder: Path) -> list[int]:
    return [row["n"] for row in rows_of(folder)]
