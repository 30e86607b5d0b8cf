"""What a sink writes to, and what streaming queries read: files of numbered lines, one a batch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import tidemill as tm
from tests.services.mariadb import MariaDB

ROWS_PER_FILE = 20


class Output:
    """A queue or a log that need not be there yet, and what is in it."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        self.address = address

    @classmethod
    def of(cls, kind: str, folder: Path, request: pytest.FixtureRequest) -> Output:
        """`kind` is "queue", "log", "mysql" or "postgres"."""
        if kind == "postgres":
            return cls(kind, request.getfixturevalue("postgres").url())
        if kind != "mysql":
            return cls(kind, str(folder / kind))
        server: MariaDB = request.getfixturevalue("mariadb")
        return cls(kind, server.url(request.getfixturevalue("database"), "out"))

    @property
    def options(self) -> dict[str, str]:
        return {"kind": "queue" if self.kind == "queue" else "log"}

    def rows(self) -> list[Any]:
        """All payloads in the order of writing; the columns of a queue include its key."""
        if self.kind == "queue":
            with tm.PriorityQueue(self.address, read_only=True) as queue:
                table = queue.peek(-1).to_arrow()
            return sorted(table.to_pylist(), key=lambda row: row["seq"])
        with tm.Log(self.address) as log:
            first, after = log.ends()
            return log.read(first, rows_max=max(after - first, 1)).rows()

    def numbers(self) -> list[int]:
        """The column `n` of all rows."""
        return [row["n"] for row in self.rows()]


def lines_of(file: int) -> list[int]:
    return list(range(file * ROWS_PER_FILE, (file + 1) * ROWS_PER_FILE))


def add_files(folder: Path, files: range) -> None:
    """Input for so many batches, older files first."""
    folder.mkdir(exist_ok=True)
    for file in files:
        path = folder / f"{file:04}.txt"
        path.write_text("\n".join(map(str, lines_of(file))) + "\n")
        # Spark takes older files first, and by more than moments.
        os.utime(path, (1_700_000_000 + file,) * 2)


def expected(files: int) -> list[int]:
    return [number for file in range(files) for number in lines_of(file)]


def numbered(spark: SparkSession, folder: Path) -> DataFrame:
    """The lines of the files as a stream, a file a batch."""
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", "1").load(str(folder))
    return lines.selectExpr("cast(value as long) AS n", "cast(value as long) AS key")


def start(
    frame: DataFrame, output: Output, checkpoint: str, *, source: str = "tidemill", **options: str
) -> StreamingQuery:
    """Write a stream to an output, until its input is used up."""
    if output.kind != "queue":
        frame = frame.drop("key")
    writer = frame.writeStream.format(source).options(**output.options, **options)
    writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    return writer.start(output.address)


def run(frame: DataFrame, output: Output, checkpoint: str, **options: str) -> None:
    start(frame, output, checkpoint, **options).awaitTermination()


def forget_last_commit(checkpoint: str) -> int:
    """Delete the last entry of the commit log, as if the driver had died before writing it."""
    commits = Path(checkpoint) / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last
