"""Files that commands write when all is done."""

from __future__ import annotations

import os
from pathlib import Path

import tidemill as tm


def check_result(file: Path, what: str = "picture") -> None:
    """Refuse a file that could not be written before the work for it is done, not after it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.is_dir():
        raise tm.InvalidInput(f"{file} is a folder; name a file for the {what}")
    if not os.access(file if file.exists() else file.parent, os.W_OK):
        raise tm.NoAccess(f"{file} may not be written; name another file for the {what}")
