"""The path of a folder as callers give it."""

from __future__ import annotations

import os
from pathlib import Path

from tidemill.errors import InvalidInput
from tidemill.shown import shown


def folder_path(path: object, what: str) -> Path:
    """The path of `what`, or `InvalidInput`: text that a file system can hold, and not nothing,
    which would be the folder that the program happens to be in.

    >>> folder_path("", "a log")
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: the path of a log is empty; '.' is the folder you are in
    """
    name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
    if not isinstance(name, str):
        raise InvalidInput(f"the path of {what} is a string or a pathlib.Path, not {shown(path)}")
    if "\0" in name:
        raise InvalidInput(f"the path of {what} has no zero byte; this one has: {shown(path)}")
    try:
        os.fsencode(name)
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{shown(path)} cannot be the name of a folder: {error}") from error
    if not name:
        raise InvalidInput(f"the path of {what} is empty; '.' is the folder you are in")
    return Path(name)
