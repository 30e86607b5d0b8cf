"""What a server's settings promise about a commit that it has confirmed."""

from __future__ import annotations

from dataclasses import dataclass

from tidemill.files.queue.receipt import Durability


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings that matter, and what is wrong with them.

    >>> ServerSettings("18.1", 1 << 20, "", ("fsync = off: …",)).durability
    'buffered'
    """

    version: str
    packet_bytes_max: int  # of one statement with its values
    packet_setting: str  # what bounds it; empty if that cannot be changed
    problems: tuple[str, ...]  # each says which setting, what follows, and what to do

    @property
    def durability(self) -> Durability:
        return "buffered" if self.problems else "synced"

    @property
    def packet_advice(self) -> str:
        """What to change if one row alone is too large.

        >>> ServerSettings("10.11", 4096, "max_allowed_packet", ()).packet_advice
        'raise max_allowed_packet of the server, which is 4096'
        """
        if not self.packet_setting:
            return ""
        return f"raise {self.packet_setting} of the server, which is {self.packet_bytes_max}"
