"""What the settings of PostgreSQL promise about a commit that it has confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.limits import FRAME_BODY_BYTES_MAX
from tidemill.log.sql.settings import ServerSettings

SETTING_NAMES = ("server_version", "fsync", "full_page_writes", "synchronous_commit")

# The server takes a gigabyte. A row holds the largest frame, its header and the other values.
_PACKET_BYTES_MAX = FRAME_BODY_BYTES_MAX + (8 << 10)


def settings_of(values: Mapping[str, str]) -> ServerSettings:
    """What follows from the values, which are those of a session: a role may have its own.

    >>> settings = settings_of({"fsync": "off", "server_version": "18.1"})
    >>> settings.durability, len(settings.problems)
    ('buffered', 1)
    """
    problems = []
    if values.get("fsync") == "off":
        problems.append(
            "fsync = off: a crash of the machine loses confirmed rows, and may damage every table; "
            "set it to on"
        )
    if values.get("synchronous_commit") == "off":
        problems.append(
            "synchronous_commit = off: a crash of the server loses confirmed rows; set it to on"
        )
    if values.get("full_page_writes") == "off":
        problems.append(
            "full_page_writes = off: a power failure may leave torn pages, which cannot be "
            "repaired; turn it on unless the disk writes 8 KiB atomically"
        )
    version = values.get("server_version", "").partition(" ")[0]
    return ServerSettings(version, _PACKET_BYTES_MAX, "", tuple(problems))
