"""Who commits is killed at any time, and starts again with the last number it had begun."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.services.mariadb import MariaDB
from tests.transactions.child import rows_of
from tests.transactions.targets import FileLogTarget, MySQLTarget, QueueTarget, Target

ROOT = Path(__file__).resolve().parents[2]
KILLS = 400 if os.environ.get("TIDEMILL_SOAK") == "1" else 12


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["queue", "log", "mysql"])
def test_whoever_is_killed_and_goes_on_writes_everything_once(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, tally: Callable[[str, int], None]
) -> None:
    target: Target
    if kind == "mysql":
        server: MariaDB = request.getfixturevalue("mariadb")
        address = server.url(request.getfixturevalue("database"), "log")
        target = MySQLTarget(address)
    else:
        address = str(tmp_path / "it")
        target = (QueueTarget if kind == "queue" else FileLogTarget)(tmp_path / "it")
    draw = random.Random(7)
    number = 0
    for _ in range(KILLS):
        command = [sys.executable, "-m", "tests.transactions.child", kind, address, str(number)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for begun in range(number, number + draw.choice([1, 2, 2, 3])):
            assert int(process.stdout.readline()) == begun
        time.sleep(draw.uniform(0, 0.04))
        process.kill()
        lines = process.stdout.read().split()
        assert process.wait() == -9
        process.stdout.close()
        number = int(lines[-1]) if lines else begun
    found = target.rows()
    numbers = range(number + 1 if found and found[-1].startswith(f"{number:05}") else number)
    expected = [row for one in numbers for part in range(2) for row in rows_of(one, part)]
    assert found == expected
    assert number > KILLS // 2
    tally(f"kills of who commits, {kind}", KILLS)
