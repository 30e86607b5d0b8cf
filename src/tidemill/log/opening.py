"""From an address to a store: a folder, `memory:`, or a server.

orders/                 file:/srv/orders        a folder
memory:orders                                   this process, for tests
"""

from __future__ import annotations

import os
import re
import threading
from typing import Any

import pyarrow as pa

from tidemill.errors import InvalidInput
from tidemill.log.contract import LogStore
from tidemill.log.memory import Shelf
from tidemill.names import check_name

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]+):", re.ASCII)

_shelves: dict[str, Shelf] = {}
_shelves_mutex = threading.Lock()


def open_store(
    address: str | os.PathLike[str], *, schema: pa.Schema | None, **options: Any
) -> LogStore:
    """The store of the log at an address; `options` are the store's own.

    >>> open_store("memory:doc-opening", schema=None).ends()
    Ends(first=1, next=1)
    >>> open_store("gopher://host/log", schema=None)
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: a log cannot be kept at gopher: give a folder, or memory:
    """
    found = _SCHEME.match(address) if isinstance(address, str) else None
    scheme = found[1] if found else "file"
    if scheme == "memory":
        return _open_shelf(str(address).removeprefix("memory:"), schema, options)
    raise InvalidInput(f"a log cannot be kept at {scheme}: give a folder, or memory:")


def _open_shelf(name: str, schema: pa.Schema | None, options: dict[str, Any]) -> LogStore:
    check_name(name, what="log")
    refuse_options(options, "memory")
    with _shelves_mutex:
        shelf = _shelves.setdefault(name, Shelf())
    return shelf.open(schema)


def refuse_options(options: dict[str, Any], scheme: str) -> None:
    """Raise if any option is left that nobody has taken."""
    if options:
        raise InvalidInput(f"a log at {scheme} has no option {sorted(options)[0]!r}")
