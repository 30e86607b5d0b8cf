"""What a checkpoint says of a batch is on the disk before the batch is."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemill as tm
from tests.spark.tracing import MARK, synced
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.spark.sink.checkpoint import sync_batch

COMMIT = f"""
import sys
import pyarrow as pa
from tidemill.spark.schema import spark_schema
from tidemill.spark.sink import stream_writer
from tidemill.spark.sink.parts import stage
from tidemill.spark.sink.writers import Staged

folder = sys.argv[1]
rows = pa.record_batch({{"value": pa.array([b"a"], pa.binary())}})
options = {{"path": f"{{folder}}/log", "checkpointLocation": f"file:{{folder}}/checkpoint"}}
writer = stream_writer(options, spark_schema(rows.schema), False)
part = stage(writer._target, writer._name, [rows], 0)
print("{MARK}", file=sys.stderr, flush=True)
writer.commit([Staged(part)], 3)
"""


def test_a_batch_counts_once_its_rows_are_said_for_good(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"5e2c7b4e-9d1c-4b35-a0a8-54a8a7bd7e2e"}')
    (checkpoint / "offsets" / "3").write_text("v1")
    found = synced(COMMIT, tmp_path)
    journal = next(at for at, name in enumerate(found) if "/log/journal/" in name)
    before = set(found[:journal])
    assert {str(checkpoint / name) for name in ("metadata", "offsets/3", "offsets")} <= before


@pytest.mark.parametrize("name", ["state/checkpoint/offsets", "state/checkpoint"])
def test_a_checkpoint_that_cannot_be_synced_keeps_its_batch_from_counting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    checkpoint = tmp_path / "state" / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    refused = tmp_path / "state"
    sync_folder = LocalFileSystem.sync_folder

    def sync(fs: LocalFileSystem, folder: Path) -> None:
        if folder == refused:
            raise PermissionError(13, "Permission denied", str(folder))
        sync_folder(fs, folder)

    monkeypatch.setattr(LocalFileSystem, "sync_folder", sync)
    sync_batch(str(checkpoint), 0)  # What was there before may be somebody else's.
    refused = tmp_path / name
    with pytest.raises(tm.NoAccess, match="Permission denied"):
        sync_batch(str(checkpoint), 0)
