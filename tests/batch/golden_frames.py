"""The frames whose bytes are kept in `golden/`: what every later release must still read.

A change that makes the tests of these files fail breaks every queue that exists. A new version of
the format adds files and keeps the old ones. `python -m tests.batch.golden_frames` writes those
that are missing and leaves the rest alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.batch.samples import TYPED, frame_of, typed_rows
from tidemill.batch import DEFAULT
from tidemill.limits import INT64_MAX, INT64_MIN

FOLDER = Path(__file__).parent / "golden"

PAIRS = [(INT64_MIN, b"least"), (-1, b""), (0, bytes(range(256))), (INT64_MAX, b"greatest")]

# File name → rows, payload schema, and what else goes into the header.
FRAMES: dict[str, tuple[list[Any], pa.Schema, dict[str, Any]]] = {
    "v1-pairs": (PAIRS, DEFAULT, {}),
    "v1-one": ([(7, b"seven")], DEFAULT, {}),
    "v1-carried": (PAIRS, DEFAULT, {"carried": True}),
    "v1-producer": (PAIRS, DEFAULT, {"producer": bytes(range(16)), "producer_number": 42}),
    "v1-lz4": (PAIRS, DEFAULT, {"codec": "lz4"}),
    "v1-zstd": (PAIRS, DEFAULT, {"codec": "zstd"}),
    "v1-typed": (typed_rows(12), TYPED, {}),
    "v1-typed-zstd-carried": (typed_rows(12), TYPED, {"codec": "zstd", "carried": True}),
}


def write_missing() -> None:
    """Write the files that are not there yet."""
    FOLDER.mkdir(exist_ok=True)
    for name, (data, schema, options) in FRAMES.items():
        path = FOLDER / f"{name}.frame"
        if not path.exists():
            path.write_bytes(frame_of(data, schema, **options)[0])


if __name__ == "__main__":
    write_missing()
