"""A driver of its own, which runs a job in small steps and tells of each; it is killed meanwhile.

python -m tests.spark.killed_job replay|archive LOG PLACE
"""

from __future__ import annotations

import sys

import pytest

from tidemill.log.archive.segment_writer import Sizes
from tidemill.spark import archive, replay, session
from tidemill.spark.archives import archive_job
from tidemill.spark.replaying import job

STEP_ROWS = 50


def main(what: str, log: str, place: str) -> None:
    spark = session(master="local[1]", progress=False)
    patch = pytest.MonkeyPatch()
    if what == "replay":
        patch.setattr(job, "REPLAY_ROUND_ROWS", STEP_ROWS)
        replay(spark, log, place, where="n % 2 = 0", on_progress=lambda *_: _tell())
    else:
        patch.setattr(archive_job, "Sizes", lambda: Sizes(segment_rows=STEP_ROWS))
        patch.setattr(archive_job, "round_tasks", lambda _: 2)
        archive(spark, log, place, on_progress=lambda _: _tell())


def _tell() -> None:
    sys.stdout.write("step\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
