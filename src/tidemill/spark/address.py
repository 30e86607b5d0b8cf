"""Where a queue is, so that every process finds it: a folder by its full path, or a server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal, NamedTuple

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.filesystem import LocalFileSystem
from tidemill.files.settings import QUEUE, read_settings
from tidemill.files.storage import storage_errors

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.ASCII)


class Address(NamedTuple):
    """A queue or a log, by what it is."""

    url: str
    kind: Literal["queue", "log"]

    @property
    def place(self) -> str:
        """What it is called in messages: without a password."""
        return re.sub(r"(//[^:/@]*):[^@/]*@", r"\1@", self.url)


def find(path: str) -> Address:
    """What is at a path, which may be relative to where the driver runs."""
    scheme = found[1] if (found := _SCHEME.match(path)) else "file"
    if scheme in ("mysql", "mariadb"):
        return Address(path, "log")
    if scheme != "file":
        raise InvalidInput(f"Spark reads folders and mysql:// logs, not {scheme}:")
    folder = Path(path.removeprefix("file://").removeprefix("file:")).absolute()
    with storage_errors("opening", folder):
        try:
            settings = read_settings(LocalFileSystem(), folder, kind=None)
        except (FileNotFoundError, NotADirectoryError):
            settings = None
    if settings is None:
        raise NotAQueue(f"{folder} holds no queue and no log")
    return Address(str(folder), "queue" if settings.kind == QUEUE else "log")
