"""What a checkpoint says of a batch is on the disk before the batch is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.services.server import skip_or_fail

COMMIT = """
import sys
import pyarrow as pa
from tidemill.spark.schema import spark_schema
from tidemill.spark.sink import stream_writer
from tidemill.spark.sink.parts import stage
from tidemill.spark.sink.writers import Staged

folder = sys.argv[1]
rows = pa.record_batch({"value": pa.array([b"a"], pa.binary())})
options = {"path": f"{folder}/log", "checkpointLocation": f"file:{folder}/checkpoint"}
writer = stream_writer(options, spark_schema(rows.schema), False)
part = stage(writer._target, writer._name, [rows], 0)
print("commits", file=sys.stderr, flush=True)
writer.commit([Staged(part)], 3)
"""


def test_a_batch_counts_once_its_rows_are_said_for_good(tmp_path: Path) -> None:
    strace = shutil.which("strace") or ""
    if not strace:
        skip_or_fail("strace is not installed: make services")
    trial = subprocess.run([strace, "-o", "/dev/null", "true"], capture_output=True)
    if trial.returncode:
        pytest.skip("strace may not trace here")
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"5e2c7b4e-9d1c-4b35-a0a8-54a8a7bd7e2e"}')
    (checkpoint / "offsets" / "3").write_text("v1")
    trace = ["-f", "-y", "-qq", "-e", "trace=fsync,fdatasync,write", "-e", "signal=none"]
    subprocess.run(
        [
            strace,
            *trace,
            "-o",
            str(tmp_path / "calls"),
            sys.executable,
            "-c",
            COMMIT,
            str(tmp_path),
        ],
        check=True,
        capture_output=True,
    )
    _, _, committing = (tmp_path / "calls").read_text().partition("commits")
    synced = re.findall(r"(?:fsync|fdatasync)\(\d+<([^>]*)>", committing)
    journal = next(at for at, name in enumerate(synced) if "/log/journal/" in name)
    before = set(synced[:journal])
    assert {str(checkpoint / name) for name in ("metadata", "offsets/3", "offsets")} <= before
