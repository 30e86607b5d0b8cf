"""How connections are found again: a connection that fell silent may be in the middle of a
transaction, whose locks the server holds until it notices.

Each connection wears a badge: a name that the server knows for as long as the connection is there.
So whoever knows the name can ask which connection has it, and end that. Numbers of connections
would not do, because a server that was started again gives them anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from tidemill.log.sql.connection import Connection


def new_badge() -> str:
    """A badge that nobody else has."""
    return f"tidemill-{os.urandom(16).hex()}"


def badge_of(owner: bytes, place: int) -> str:
    """The badge of a publisher's connection, which can be told from who owns the epoch.

    >>> badge_of(b"\\x01\\xff", 3)
    'tidemill-01ff-3'
    """
    return f"tidemill-{owner.hex()}-{place}"


def end_holders(connection: Connection, badges: Iterable[str]) -> None:
    """End the connections with these badges, as far as there are any, but not the one asking."""
    names = [badge for badge in badges if badge != connection.badge]
    if names:
        connection.end_holders(names)
