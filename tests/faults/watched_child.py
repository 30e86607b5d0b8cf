"""Processes around one folder: an owner that works on it, and readers that look on.

    python watched_child.py own  FOLDER LOG SEED SYNC FIRST
    python watched_child.py read FOLDER LOG NOTES

The owner appends a line to the log before each operation and another one when it has returned. A
reader notes how long the log was before it looked, what it saw, and how long the log was then; a
judge can thus tell between which operations it must have looked. Both go on until they are killed,
or, a reader, until its input ends.
"""

from __future__ import annotations

import json
import os
import random
import select
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from tidemill.files.folder.folder_options import SyncMode
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.state.bucket import Width

SEGMENT_BYTES = 32 * 1024
_ITEMS = 300
_PAUSE_S = 0.1


def open_owner(folder: Path, sync: SyncMode = "full") -> PriorityQueue:
    return PriorityQueue(folder, bucket=Width(64), sync=sync, segment_bytes=SEGMENT_BYTES)


def make_value(key: int, number: int) -> bytes:
    """A value that proves that it is whole."""
    body = b"%d:%d:" % (key, number)
    body += b"x" * (40 + number % 400)
    return body + xxhash.xxh3_64_digest(body)


def numbers_of(table: pa.Table) -> tuple[list[int], list[int]]:
    """(keys, numbers) of items in order; raises if one is torn."""
    keys = table["key"].to_pylist()
    numbers = []
    for key, value in zip(keys, table["value"].to_pylist(), strict=True):
        if xxhash.xxh3_64_digest(value[:-8]) != value[-8:]:
            raise AssertionError(f"an item with key {key} is torn")
        found, number, _ = value.split(b":", 2)
        if int(found) != key:
            raise AssertionError(f"an item has key {key} instead of {int(found)}")
        numbers.append(int(number))
    return keys, numbers


def digest(keys: list[int], numbers: list[int]) -> str:
    """A hash of items in order."""
    return xxhash.xxh3_64_hexdigest(np.array([keys, numbers], np.int64).tobytes())


def own(folder: Path, log_path: Path, seed: int, sync: SyncMode, number: int) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def tell(*words: object) -> None:
        os.write(log, json.dumps(words).encode() + b"\n")

    draw = random.Random(seed)
    queue = open_owner(folder, sync)
    tell("opened", digest(*numbers_of(queue.scan().read_all())))
    while True:
        if len(queue) < draw.randrange(2 * _ITEMS):
            count = draw.choice([1, 3, 20])
            keys = [draw.randrange(400) for _ in range(count)]
            tell("push", number, keys)
            pairs = [(key, make_value(key, number + at)) for at, key in enumerate(keys)]
            queue.push(pairs)
            number += count
        else:
            count = draw.choice([1, 2, 30])
            tell("pop", count)
            queue.pop(count)
        tell("done")


def read(folder: Path, log_path: Path, notes_path: Path) -> None:
    notes = os.open(notes_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    reader = PriorityQueue(folder, read_only=True)
    looks = 0
    # A moment between two looks leaves the owner some of a machine with few cores.
    while not select.select([sys.stdin], [], [], _PAUSE_S)[0]:
        looks += 1
        if looks % 20 == 0:
            reader.close()
            reader = PriorityQueue(folder, read_only=True)
        before = log_path.stat().st_size
        if looks % 4 == 0:
            note: dict[str, object] = {"count": len(reader)}
        elif looks % 4 == 1:
            batch = pa.Table.from_batches([reader.peek(-1).to_arrow()])
            note = {"digest": digest(*numbers_of(batch))}
        else:
            note = {"digest": digest(*numbers_of(reader.scan().read_all()))}
        after = log_path.stat().st_size
        line = {"before": before, "after": after, **note}
        os.write(notes, json.dumps(line).encode() + b"\n")
    reader.close()


if __name__ == "__main__":
    role, path, log_name, *rest = sys.argv[1:]
    if role == "own":
        own(Path(path), Path(log_name), int(rest[0]), rest[1], int(rest[2]))  # type: ignore[arg-type]
    else:
        read(Path(path), Path(log_name), Path(rest[0]))
