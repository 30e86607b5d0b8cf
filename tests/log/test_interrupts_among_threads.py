"""Ctrl-C that falls anywhere into what one thread does with a log, while others send and receive:
what each of them was told is true afterwards, and nobody waits for ever.

`test_interrupts.py` breaks single calls off where a function begins or returns. Signals come
between any two steps, also where a loop goes on.
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
ROUNDS = 5_000 if os.environ.get("TIDEMILL_SOAK") == "1" else 60


@pytest.mark.slow
def test_interrupts_among_threads_lose_double_and_invent_no_rows(
    tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    # The process watches over each of its rounds; how long all take is up to the disk.
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(
        [sys.executable, "-m", "tests.log.interrupted_child", str(tmp_path), "1", str(ROUNDS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    happened = json.loads(done.stdout)
    tally("interrupts among threads of a log", happened["KeyboardInterrupt"])
    # They fell into what was under way, others went on, and not everything was broken off.
    assert happened["StorageFailed"] > 0
    assert (
        min(happened[what] for what in ("KeyboardInterrupt", "nothing", "sent", "received"))
        > ROUNDS
    )
    assert min(happened["sent soon"], happened["acked"]) > 0
