"""What a command needs does not grow with its input, nor with the queue."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from tests.gateway.shell import Shell
from tidemill.gateway.rows.json_text import encode_ndjson

MB = 1_000_000
SMALL, LARGE = 40 * MB, 240 * MB
GROWTH_MB_MAX = 70  # for more than twice as much that is read more
SCRIPT = """
import sys
from pathlib import Path
from tidemill.gateway.command_line import main
status = main(sys.argv[1:])
lines = Path("/proc/self/status").read_text().splitlines()
peak = next(line for line in lines if line.startswith("VmHWM:"))
print(status, int(peak.split()[1]) * 1024 / 1e6, file=sys.stderr)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no peak of memory to read"),
]


def rows(size: int) -> pa.Table:
    count = size // 100
    text = np.random.default_rng(1).bytes(count * 45).hex()
    offsets = np.arange(count + 1, dtype=np.int32) * 90
    note = pa.Array.from_buffers(
        pa.utf8(), count, [None, pa.py_buffer(offsets), pa.py_buffer(text.encode())]
    )
    return pa.table({"key": np.arange(count), "note": note})


def write_ndjson(table: pa.Table, path: Path) -> None:
    with open(path, "wb") as file:
        for batch in table.to_batches(max_chunksize=50_000):
            for text in encode_ndjson(batch, binary="utf8"):
                file.write(text)


def write_csv(table: pa.Table, path: Path) -> None:
    csv.write_csv(table, path)


def write_parquet(table: pa.Table, path: Path) -> None:
    # One row group: the hardest case for whoever reads by pieces.
    pq.write_table(table, path, row_group_size=len(table), compression="none")


def peak_mb(shell: Shell, arguments: str) -> float:
    (shell.folder / "measured.py").write_text(SCRIPT)
    done = shell.good(f"{sys.executable} measured.py {arguments}")
    status, peak = done.err.split()
    assert status == "0", done.err
    return float(peak)


@pytest.mark.parametrize(
    ("kind", "write"), [("ndjson", write_ndjson), ("csv", write_csv), ("parquet", write_parquet)]
)
def test_memory_does_not_grow_with_the_input(
    shell: Shell,
    kind: str,
    write: Callable[[pa.Table, Path], None],
    report: Callable[[str], None],
) -> None:
    peaks = []
    for size in (SMALL, LARGE):
        write(rows(size), shell.folder / f"rows.{kind}")
        peaks.append(peak_mb(shell, f"push {kind}-{size}/ --from rows.{kind} --sync none"))
    report(f"peak memory of push: {kind} of 40 MB {peaks[0]:.0f} MB, of 240 MB {peaks[1]:.0f} MB")
    assert peaks[1] - peaks[0] < GROWTH_MB_MAX


def test_memory_does_not_grow_with_what_is_popped(
    shell: Shell, report: Callable[[str], None]
) -> None:
    peaks = []
    for size in (SMALL, LARGE):
        write_parquet(rows(size), shell.folder / "rows.parquet")
        shell.good(f"tidemill push q-{size}/ --from rows.parquet --sync none --bucket shift:14")
        peaks.append(peak_mb(shell, f"pop q-{size}/ --all --to out-{size}.ndjson --sync none"))
    report(f"peak memory of pop: 40 MB {peaks[0]:.0f} MB, 240 MB {peaks[1]:.0f} MB")
    assert peaks[1] - peaks[0] < GROWTH_MB_MAX
