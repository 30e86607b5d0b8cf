"""From an address to a store: a folder, `memory:`, or a server.

orders/                 file:/srv/orders        a folder
memory:orders                                   this process, for tests
mysql://user@host:3306/database/orders          a server; `mariadb://` is the same
postgresql://user@host:5432/database/orders     another; `postgres://` is the same
s3://bucket/orders      a folder with one       the archive of a log alone, which is only read
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.files.folder.folder_path import folder_path
from tidemill.log.contract import LogStore
from tidemill.log.memory import Shelf
from tidemill.log.sql.address import SCHEMES
from tidemill.log.tiered import TieredLog
from tidemill.names import check_name
from tidemill.urls import path_of, scheme_of

_shelves: dict[str, Shelf] = {}
_shelves_mutex = threading.Lock()


def open_store(
    address: str | os.PathLike[str], *, schema: pa.Schema | None, **options: Any
) -> TieredLog:
    """The store of the log at an address, with its archive; `options` are the store's own.

    >>> open_store("memory:doc-opening", schema=None).ends()
    Ends(first=1, next=1)
    >>> open_store("gopher://host/log", schema=None)
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: a log cannot be kept at gopher: give a folder, memory:, mysql:// \
or postgresql://
    """
    scheme = scheme_of(address)
    if scheme == "memory":
        return TieredLog(_open_shelf(str(address)[len("memory:") :], schema, options))
    if scheme == "file":
        from tidemill.log.on_files.store import FileLog  # noqa: PLC0415 (only who needs it)

        path = path_of(address)
        folder_path(path, "a log")
        if is_archive(address):
            return _open_archive(path, schema, options)
        try:
            return TieredLog(FileLog(path, schema=schema, **options))
        except TypeError as error:
            raise unknown_option(error, "in a folder") from error
    if scheme in SCHEMES:
        # Its driver is an extra, which most programs do without.
        from tidemill.log.sql.store import ServerLog  # noqa: PLC0415

        try:
            return TieredLog(ServerLog(str(address), schema=schema, **options))
        except TypeError as error:
            raise unknown_option(error, "on a server") from error
    if scheme == "s3":
        return _open_archive(address, schema, options)
    raise InvalidInput(
        f"a log cannot be kept at {scheme}: give a folder, memory:, mysql:// or postgresql://"
    )


def is_archive(address: str | os.PathLike[str]) -> bool:
    """Whether a folder holds an archive. One with settings is a queue or a log, whatever else lies
    there.
    """
    if scheme_of(address) != "file":
        return False
    manifest, settings = (
        os.path.isfile(os.path.join(path_of(address), name))
        for name in ("manifest.json", "settings.json")
    )
    return manifest and not settings


def _open_archive(
    url: str | os.PathLike[str], schema: pa.Schema | None, options: dict[str, Any]
) -> TieredLog:
    """The archive of a log, which is only read."""
    from tidemill.log.archived_log import ArchivedLog  # noqa: PLC0415 (only who needs it)

    if unknown := sorted(options.keys() - {"create", "read_only"}):
        raise InvalidInput(f"the archive of a log has no option {unknown[0]!r}")
    log = ArchivedLog(url)
    if schema is not None:
        raise InvalidInput(f"{log.place} is the archive of a log, and has that log's schema")
    return TieredLog(log)


def _open_shelf(name: str, schema: pa.Schema | None, options: dict[str, Any]) -> LogStore:
    check_name(name, what="log")
    if options:
        raise InvalidInput(f"a log in memory has no option {sorted(options)[0]!r}")
    with _shelves_mutex:
        shelf = _shelves.setdefault(name, Shelf())
    return shelf.open(schema)


def unknown_option(error: TypeError, where: str) -> TypeError | InvalidInput:
    """The error for an option that a store does not have; any other error as it is."""
    found = re.search(r"unexpected keyword argument ('.*?')", str(error))
    return InvalidInput(f"a log {where} has no option {found[1]}") if found else error
