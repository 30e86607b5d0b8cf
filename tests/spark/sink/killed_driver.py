"""A driver of its own, whose query is killed: see `killed_source`.

python -m tests.spark.sink.killed_driver MASTER KIND ADDRESS CHECKPOINT FILES
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from tests.services.spark_cluster import on_half_of_it
from tests.spark.sink.killed_source import NAME, WAITING, KilledSource, in_folder, point
from tests.spark.sink.outputs import Output, numbered, start
from tidemill.spark import session


def main(master: str, kind: str, address: str, checkpoint: str, files: str) -> None:
    spark = session(master=master, config={} if master.startswith("local") else _config())
    gateway: Any = spark.sparkContext._gateway
    in_folder("driver.pid").write_text(str(gateway.proc.pid))
    spark.dataSource.register(KilledSource)
    output = Output(kind, address)
    try:
        start(numbered(spark, Path(files)), output, checkpoint, source=NAME).awaitTermination()
    finally:
        if point() != WAITING:
            in_folder("driver.status").write_text(str(gateway.proc.wait(60)))


def _config() -> dict[str, str]:
    """Lets executors know what this process was told."""
    told = ("PYTHONPATH", "TIDEMILL_TEST_POINT", "TIDEMILL_TEST_BATCH", "TIDEMILL_TEST_FOLDER")
    return {**on_half_of_it(), **{f"spark.executorEnv.{name}": os.environ[name] for name in told}}


if __name__ == "__main__":
    main(*sys.argv[1:])
