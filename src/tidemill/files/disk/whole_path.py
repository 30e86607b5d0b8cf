"""Paths that stay what they are when the process goes to another folder."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.errors import InvalidInput
from tidemill.shown import shown


def whole_path(path: str | os.PathLike[str]) -> Path:
    """The path from the root on: of one that is not, the folder that the process is in now is the
    beginning. Links and dots are left as they are.

    >>> whole_path("/srv/orders"), whole_path("orders") == Path.cwd() / "orders"
    (PosixPath('/srv/orders'), True)
    """
    try:
        return Path(path).absolute()
    except FileNotFoundError as error:
        raise InvalidInput(
            f"{shown(path)} begins in the folder you are in, which is gone: give a whole path"
        ) from error
