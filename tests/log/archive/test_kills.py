"""An archiver that is killed, really, in the middle of whatever it does."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tidemill as tm
from tests.log.archive.test_archiver import stray
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.place import open_objects

pytestmark = pytest.mark.slow

KILLS = 12


def test_an_archiver_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    chance = random.Random(7)
    log_path, archive_path = tmp_path / "log", tmp_path / "archive"
    sure = 0
    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.log.archive.archiving_child"]
        child = subprocess.Popen(
            [*command, str(log_path), str(archive_path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[3],
        )
        assert child.stdout is not None
        # Some die in their first pass. With each line that follows one is over, so that there is
        # something in the archive, however slow they are.
        for _ in range(chance.randint(1, 4)):
            assert child.stdout.readline().endswith("\n"), "it ended by itself"
        time.sleep(chance.random() * 0.3)  # The moment is what is tried out.
        child.kill()
        said = child.stdout.read().split("\n")[:-1]
        child.wait()
        child.stdout.close()
        sure = max([sure, *map(int, said)])
        with tm.Log(log_path) as log:
            batch = log.read(1, rows_max=10**6)
            assert batch.rows() == [b"%08d" % seq * 10 for seq in range(1, len(batch) + 1)]
            assert len(batch) >= sure
    with tm.Log(log_path) as log:
        log.archive(archive_path)
    archive = Archive(open_objects(archive_path))
    assert archive.look().next == len(batch) + 1
    assert archive.look().pages, "too little was archived to mean anything"
    assert stray(archive.objects) == set()
