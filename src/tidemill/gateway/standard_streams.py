"""Standard input, output and error as a command finds them: closed, or of another encoding."""

from __future__ import annotations

import io
import os
import sys

from tidemill.errors import NoAccess

_NAMES = ("standard input", "standard output", "standard error")


def secure_streams() -> None:
    """See to it that no file gets the number of a stream that was closed, and that no character
    is one too many for a terminal.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # The next file that is opened would get this number, and what is said with it.
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def check_open(number: int) -> None:
    """Raise if a stream that is needed was closed before the command began, as `>&-` does."""
    if (sys.stdin, sys.stdout, sys.stderr)[number] is None:
        raise NoAccess(f"{_NAMES[number]} is closed; leave it open, or name a file")


def knows_all_characters() -> bool:
    """Whether standard output can say every character as it is."""
    encoding = getattr(sys.stdout, "encoding", None) or ""
    return encoding.lower().replace("-", "") == "utf8"
