"""Processes of the main job, which end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tidemill as tm


@contextmanager
def child(
    arguments: Sequence[str], *, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen[str]]:
    """This Python with other arguments; killed, with all that it started, if it is still there."""
    # The same package as here, also where that is found by a path from another folder.
    package = Path(tm.__file__ or "").resolve().parents[1]
    paths = [str(package), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, *arguments],
        pass_fds=pass_fds,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
    )
    with process:
        try:
            yield process
        finally:
            kill(process)


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL to a process and all that it started: nothing of it can say goodbye."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # It has ended already.
