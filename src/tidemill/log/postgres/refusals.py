"""The server's errors, and which of ours they are."""

from __future__ import annotations

import re

import psycopg

from tidemill.errors import (
    Corrupt,
    DiskFull,
    NoAccess,
    NotAQueue,
    StorageFailed,
    TidemillError,
    TooLarge,
)
from tidemill.log.sql.connection import Busy, Duplicate, Lost

# Rolled back because of others: serialization, deadlock, a lock that took too long.
_BUSY = ("40001", "40P01", "55P03")
# The server is going away or coming up, ended this connection, or has no room for another.
_LOST = ("08", "57", "25P03", "25P04", "53300", "53400")
# By their codes, or what these begin with; the first that fits counts.
_REFUSED: dict[str, type[TidemillError]] = {
    "23505": Duplicate,
    "42P07": Duplicate,  # a table that somebody else has just made
    "42710": Duplicate,  # or its type, which is there before the table is
    "53100": DiskFull,
    "28": NoAccess,
    "42501": NoAccess,
    "25006": NoAccess,  # a standby, or a transaction that may only read
    "3D": NotAQueue,
    "54": TooLarge,
    "42P01": Corrupt,
    "XX001": Corrupt,
    "XX002": Corrupt,
}
# The driver has no code of what went wrong while it connected, only words.
_REFUSED_AT_THE_DOOR: dict[str, type[TidemillError]] = {
    r"authentication failed": NoAccess,
    r"no password supplied": NoAccess,
    r"no pg_hba\.conf entry": NoAccess,
    r"role \".*\" (does not exist|is not permitted to log in)": NoAccess,
    r"permission denied for database": NoAccess,
    r"certificate verify failed": NoAccess,
    r"server certificate for .* does not match": NoAccess,
    r"server does not support SSL": NoAccess,
    r"database \".*\" does not exist": NotAQueue,
}


def refusal(cause: psycopg.Error | OSError, place: str) -> Exception:
    """What became of a statement: `Lost`, `Busy`, or an error of ours."""
    code = getattr(cause, "sqlstate", None) or ""
    if code in _BUSY:
        return Busy(f"the server reports {code}")
    message = str(cause).strip()
    if code.startswith(_LOST) or isinstance(cause, OSError):
        return Lost(f"no connection to the server of {place}: {message}")
    for start, kind in _REFUSED.items():
        if code.startswith(start):
            hint = "; make room on the server" if kind is DiskFull else ""
            return kind(f"the server of {place} refuses ({code}): {message}{hint}")
    if not code and isinstance(cause, (psycopg.OperationalError, psycopg.InterfaceError)):
        return Lost(f"no connection to the server of {place}: {message}")
    return StorageFailed(f"the server of {place} refuses ({code or 'no code'}): {message}")


def refusal_at_the_door(cause: psycopg.Error | OSError, place: str) -> Exception:
    """The same for an attempt to connect. Words that are not known, or of another language, count
    as `Lost`: it is tried again for a while, and then they are shown.

    >>> words = 'FATAL:  password authentication failed for user "app"'
    >>> refusal_at_the_door(psycopg.OperationalError(words), "postgresql://app@db/shop/orders")
    NoAccess('the server of postgresql://app@db/shop/orders refuses: FATAL:  password \
authentication failed for user "app"')
    """
    message = str(cause).strip()
    for words, kind in _REFUSED_AT_THE_DOOR.items():
        if re.search(words, message):
            return kind(f"the server of {place} refuses: {message}")
    return refusal(cause, place)
