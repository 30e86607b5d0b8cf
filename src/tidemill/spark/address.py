"""Where a queue is, so that every process finds it: a folder by its full path, or a server."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.disk.storage import storage_errors
from tidemill.files.format.settings import QUEUE, read_settings
from tidemill.log.opening import is_archive
from tidemill.log.sql.address import SCHEMES
from tidemill.records.address import SCHEMES as RECORD_SCHEMES
from tidemill.urls import path_of, scheme_of, without_password

# A server that has logs may have rings as well, and `kind` says which is meant.
_OF_RINGS = RECORD_SCHEMES - SCHEMES - {"memory"}


class Address(NamedTuple):
    """A queue, a log or a ring, by what it is."""

    url: str
    kind: Literal["queue", "log", "ring"]

    @property
    def place(self) -> str:
        """What it is called in messages: without a password."""
        return without_password(self.url)

    def __repr__(self) -> str:
        return f"Address({self.place!r}, {self.kind!r})"


def find(path: str, kind: str | None = None) -> Address:
    """What is at a path, which may be relative to where the driver runs; `kind` is what it should
    be, if that was said.
    """
    found = _find(path, is_ring=kind == "ring")
    if kind not in (None, found.kind):
        raise InvalidInput(f"{found.place} is a {found.kind}, and no {kind}")
    return found


def _find(path: str, *, is_ring: bool) -> Address:
    scheme = scheme_of(path)
    if scheme in _OF_RINGS or (is_ring and scheme in ("mysql", "mariadb")):
        return Address(path, "ring")
    if scheme == "s3":
        return Address(path, "log")  # An archive, which is read as the log that it is of.
    folder = folder_of(path)
    if folder is None:
        return Address(path, "log")
    if is_archive(folder):
        return Address(str(folder), "log")
    with storage_errors("opening", folder):
        try:
            settings = read_settings(LocalFileSystem(), folder, kind=None)
        except (FileNotFoundError, NotADirectoryError):
            settings = None
    if settings is None:
        raise NotAQueue(f"{folder} holds no queue and no log")
    return Address(str(folder), "queue" if settings.kind == QUEUE else "log")


def folder_of(path: str) -> Path | None:
    """The folder that a path means, in full, for tasks run elsewhere; None if it is a server's URL.

    >>> folder_of("file:/srv/orders"), folder_of("MySQL://app@db/shop/orders")
    (PosixPath('/srv/orders'), None)
    """
    scheme = scheme_of(path)
    if scheme in SCHEMES:
        return None
    if scheme != "file":
        raise InvalidInput(
            f"no queue and no log is kept at {scheme}: give a folder, mysql:// or postgresql://"
        )
    folder = path_of(path)
    is_url = folder != path
    if "\0" in path or ("://" in path and not is_url):
        # It is not shown: most likely a URL with a blank in front, which may hold a password.
        raise InvalidInput("this is neither a folder nor a URL: is there a blank in front of it?")
    if is_url and folder.startswith("//"):
        host, _, rest = folder[2:].partition("/")
        if host not in ("", "localhost"):
            raise InvalidInput(
                f"file://{host}/ names another machine: a relative path is written without file:, "
                "a full one as file:/srv/orders"
            )
        folder = f"/{rest}"
    return Path(folder).absolute()
