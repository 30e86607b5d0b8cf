"""The connections of a writer: one for each lane, and one that moves the pointer.

Each is used by one thread at a time: a lane's by the thread of its append, which commits what it
writes; the pointer's, which is the last, by whoever moves it.
"""

from __future__ import annotations

from tidemill.errors import TidemillError
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import badge_of
from tidemill.log.sql.connection import Busy, Connection, Lost
from tidemill.log.sql.dialect import dialect_of
from tidemill.log.sql.settings import ServerSettings


class LaneConnections:
    """Opens connections when they are first used, and again when they are dropped or stale."""

    def __init__(self, address: Address, owner: bytes, places: int) -> None:
        self._address = address
        self._owner = owner
        self._connections: list[Connection | None] = [None] * places

    def get(self, place: int) -> Connection:
        """The connection of a place, which the calling thread owns now."""
        connection = self._connections[place]
        if connection is not None and connection.is_stale:
            self.drop(place)
            connection = None
        if connection is None:
            connection = dialect_of(self._address).connect(
                self._address,
                badge_of(self._owner, place),
                # An append is a transaction anyway, and saves the statement that begins it.
                autocommit=place == len(self._connections) - 1,
            )
            self._connections[place] = connection
        return connection

    def settings(self, place: int) -> ServerSettings | None:
        """What the server is set to now; None if it does not say."""
        try:
            return self.get(place).settings()
        except (Lost, Busy, TidemillError):
            # What is asked behind a commit must not pass for its failure. Nothing was under way;
            # the next append opens another, and hears what is wrong.
            self.drop(place)
            return None

    def drop(self, place: int) -> None:
        """Close the connection of a place, and with it what it was doing."""
        connection, self._connections[place] = self._connections[place], None
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for place in range(len(self._connections)):
            self.drop(place)
