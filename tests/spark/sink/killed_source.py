"""A data source as ours, that kills its driver, or lets it wait, at a labelled point of one batch.

TIDEMILL_TEST_POINT   the label
TIDEMILL_TEST_BATCH   the number of the batch
TIDEMILL_TEST_FOLDER  where the driver's process id is found (`driver.pid`), and `reached` is
                      written once the point was reached

Python does not hear of what Spark does behind a commit. But before Hadoop gives the entry of a log
its name, it runs `readlink` to learn whether that is a link; a driver finds ours.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tidemill.spark.data_source import TidemillDataSource
from tidemill.spark.sink import stream_writer
from tidemill.spark.sink.writers import Messages, StreamWriter

NAME = "tidemill-killed"
AFTER_OFFSETS = "after the offset log"
AFTER_STAGING = "after staging"
AFTER_PUBLISH = "after publish"
BEFORE_COMMIT_LOG = "before the commit log"
WAITING = "waiting after staging"
POINTS = (AFTER_OFFSETS, AFTER_STAGING, AFTER_PUBLISH, BEFORE_COMMIT_LOG)
PUBLISHED = (AFTER_PUBLISH, BEFORE_COMMIT_LOG)  # where the batch is in the output already

READLINK = f"""\
#!/bin/sh
case "$TIDEMILL_TEST_POINT:$1" in
  "{BEFORE_COMMIT_LOG}:"*"/commits/$TIDEMILL_TEST_BATCH")
    printf '%s' "$TIDEMILL_TEST_POINT" > "$TIDEMILL_TEST_FOLDER/reached"
    kill -9 "$(cat "$TIDEMILL_TEST_FOLDER/driver.pid")" ;;
  *) exec {shutil.which("readlink")} "$@" ;;
esac
"""


class KilledSource(TidemillDataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        ours = stream_writer(self.options, schema, overwrite)
        return KilledWriter(ours, str(self.options["checkpointlocation"]))


class KilledWriter(StreamWriter):
    def __init__(self, ours: StreamWriter, checkpoint: str) -> None:
        super().__init__(ours._target, ours._name, ours._run, ours._location)
        self._checkpoint = Path(checkpoint)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if (self._checkpoint / "offsets" / _batch()).exists():
            _at(AFTER_OFFSETS)
        return super().write(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        if str(batchId) != _batch():
            super().commit(messages, batchId)
            return
        _at(AFTER_STAGING)
        if point() == WAITING:
            in_folder("reached").write_text(WAITING)
            while not in_folder("go").exists():
                time.sleep(0.05)
        super().commit(messages, batchId)
        _at(AFTER_PUBLISH)


def point() -> str:
    return os.environ["TIDEMILL_TEST_POINT"]


def _batch() -> str:
    return os.environ["TIDEMILL_TEST_BATCH"]


def in_folder(name: str) -> Path:
    return Path(os.environ["TIDEMILL_TEST_FOLDER"], name)


def _at(label: str) -> None:
    if point() == label:
        in_folder("reached").write_text(label)
        os.kill(int(in_folder("driver.pid").read_text()), signal.SIGKILL)
        os._exit(1)
