"""What the checkpoint of a query tells of its batches: Spark's own files, read beside it.

    offsets/7    how far batch 7 goes, written before it begins: "v1", then a line of JSON about
                 the batch, then an offset for each source
    commits/7    written when it is done

Spark writes a file under another name first, and keeps the last hundred.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import Corrupt, InvalidInput
from tidemill.spark.source.offsets import next_seq


@dataclass(frozen=True, slots=True)
class QueryBatch:
    """A batch that is done."""

    number: int
    done_s: float  # when, since 1970
    ends: tuple[int, ...] | None  # in front of which row it ends, for each source; None: unknown


def done_batches(checkpoint: Path, count_max: int) -> list[QueryBatch]:
    """The last batches of a query that are done, oldest first."""
    numbers = sorted(_numbers(checkpoint / "commits"))[-count_max:]
    found = [_batch(checkpoint, number) for number in numbers]
    return [batch for batch in found if batch is not None]


def last_begun(checkpoint: Path) -> int | None:
    """The last batch that began; None if there is none."""
    return max(_numbers(checkpoint / "offsets"), default=None)


def state_bytes(checkpoint: Path) -> int:
    """How much disk the state of windows, joins and the like takes."""
    total = 0
    for path in (checkpoint / "state").rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # Spark cleans up while it runs.
    return total


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]
    except FileNotFoundError:
        return []


def _batch(checkpoint: Path, number: int) -> QueryBatch | None:
    entry = checkpoint / "offsets" / str(number)
    try:
        done_s = (checkpoint / "commits" / str(number)).stat().st_mtime
        lines = entry.read_text().splitlines()
    except FileNotFoundError:
        return None  # Spark forgot it in this moment.
    if len(lines) < 2 or lines[0] != "v1":
        raise Corrupt("this is no entry of an offset log that is known here", path=entry, offset=0)
    try:
        ends = tuple(next_seq(json.loads(line)) for line in lines[2:])
    except (ValueError, InvalidInput):
        return QueryBatch(number, done_s, None)  # A source of another kind is among them.
    return QueryBatch(number, done_s, ends)
