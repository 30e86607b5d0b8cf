"""Ctrl-C that falls anywhere into a push or a pop, while other threads push and pop: what each of
them was told is true afterwards, and nobody waits for ever.

`tests/files/test_interrupted_commits.py` breaks single calls off at every place. This is about what
it cannot order: who leads a commit, who waits for it, and who comes meanwhile.
"""

from __future__ import annotations

import faulthandler
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 20_000 if os.environ.get("TIDEMILL_SOAK") == "1" else 300


@pytest.mark.slow
@pytest.mark.parametrize("sync", ["none", "data", "index", "full"])
def test_interrupts_among_threads_lose_double_and_invent_nothing(
    tmp_path: Path, sync: str, tally: Callable[[str, int], None]
) -> None:
    # The process watches over each of its rounds; how long all take is up to the disk.
    faulthandler.cancel_dump_traceback_later()
    command = [sys.executable, "-m", "tests.faults.interrupted_child", str(tmp_path)]
    paths = [str(ROOT), *sys.path]
    done = subprocess.run(
        [*command, str(ROUNDS), sync, str(ROUNDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    happened = json.loads(done.stdout)
    tally(f"interrupts among threads, sync {sync}", happened["KeyboardInterrupt"])
    assert happened["KeyboardInterrupt"] > 3 * ROUNDS
    # They fell into commits, others went on, and not everything was broken off.
    assert happened["StorageFailed"] > 0
    assert min(happened["nothing"], happened["pushes"], happened["pops"]) > ROUNDS
