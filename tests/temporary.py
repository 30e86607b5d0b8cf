"""Where tests, examples and the servers they start put what is temporary: one folder that goes with
the run.

Examples make folders and leave them, and whoever is killed cannot tidy up. The folders that pytest
itself makes stay beside it, for whoever wants to see what a failed test left.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from pathlib import Path

_NAME = "TIDEMILL_TESTS_FOLDER"  # also in the workers of a run, and whatever they start


def _begin() -> Path:
    if _NAME in os.environ:
        return Path(os.environ[_NAME])
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    folder = tempfile.mkdtemp(prefix="tidemill-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ[_NAME] = os.environ["TMPDIR"] = tempfile.tempdir = folder
    return Path(folder)


FOLDER = _begin()
