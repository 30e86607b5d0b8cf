"""Files that are made once and kept for this user: they may be deleted at any time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from tidemill.files.disk.filesystem import LocalFileSystem


def cache_place() -> Path:
    """Where they are, whether there or not: `$XDG_CACHE_HOME/tidemill`, else in `~/.cache`."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(named) if os.path.isabs(named) else Path.home() / ".cache"
    return base / "tidemill"


def lasting_folder() -> Path | None:
    """That folder, made if it is not there; None if it cannot be written."""
    folder = cache_place()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        return None
    return folder if os.access(folder, os.W_OK) else None


def cache_folder() -> Path:
    """A folder for them; who has none that can be written gets one that ends with the machine's
    next start.
    """
    return lasting_folder() or Path(tempfile.mkdtemp(prefix="tidemill-"))


def keep(path: Path, data: bytes, *, mode: int, sync: bool = False) -> None:
    """Write a file that another process may be writing, too: whoever is last wins as a whole.
    `sync`: and it is there after a power cut.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number, draft = tempfile.mkstemp(dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(number)
        os.chmod(draft, mode)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
    if sync:
        LocalFileSystem().sync_folder(path.parent)
