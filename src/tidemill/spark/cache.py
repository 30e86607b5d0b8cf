"""Files that are made once and kept for this user: they may be deleted at any time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_folder() -> Path:
    """The folder for them, made if it is not there: `$XDG_CACHE_HOME/tidemill`, else in `~/.cache`.

    A user without a home that can be written gets a folder that ends with the machine's next start.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    try:
        base.mkdir(parents=True, exist_ok=True)
        folder = base / "tidemill"
        folder.mkdir(mode=0o700, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder
    except OSError:
        pass  # The next lines are what to do about it.
    return Path(tempfile.mkdtemp(prefix="tidemill-"))


def keep(path: Path, text: str, *, mode: int) -> None:
    """Write a file that another process may be writing, too: whoever is last wins as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    number, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "w") as file:
            file.write(text)
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
