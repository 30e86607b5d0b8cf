"""What the server's settings promise about a commit that it has confirmed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.files.receipt import Durability
from tidemill.log.mysql.connection import Connection
from tidemill.log.mysql.statements import VARIABLES

_NAMES = (
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "max_allowed_packet",
    "version",
)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings that matter, and what is wrong with them.

    >>> settings = ServerSettings.of({"innodb_flush_log_at_trx_commit": "2", "version": "8.0.36"})
    >>> settings.durability, len(settings.problems)
    ('buffered', 1)
    """

    version: str
    packet_bytes_max: int
    problems: tuple[str, ...]  # each says which setting, what follows, and what to do

    @property
    def durability(self) -> Durability:
        return "buffered" if self.problems else "synced"

    @classmethod
    def read(cls, connection: Connection) -> ServerSettings:
        """Ask the server; settings may change while it runs."""
        return cls.of(
            {str(name): str(value) for name, value in connection.query(VARIABLES, _NAMES)}
        )

    @classmethod
    def of(cls, values: Mapping[str, str]) -> ServerSettings:
        """What follows from the values; one that a server does not know promises nothing bad."""
        version = values.get("version", "")
        problems = []
        flush = values.get("innodb_flush_log_at_trx_commit", "1")
        # MariaDB's 3 syncs as 1 does, in the order of its older releases.
        if flush not in ("1", "3"):
            problems.append(
                f"innodb_flush_log_at_trx_commit = {flush}: a crash of the machine loses confirmed "
                "rows; set it to 1"
            )
        if values.get("log_bin", "OFF").upper() in ("ON", "1"):
            sync = values.get("sync_binlog", "1")
            if sync != "1":
                problems.append(
                    f"sync_binlog = {sync}: a crash of the machine may roll back confirmed rows "
                    "that the binary log has lost; set it to 1"
                )
        doublewrite = values.get("innodb_doublewrite", "ON").upper()
        if doublewrite in ("OFF", "0", "DETECT_ONLY"):
            problems.append(
                f"innodb_doublewrite = {doublewrite}: a power failure may leave torn pages, which "
                "cannot be repaired; turn it on unless the disk writes 16 KiB atomically"
            )
        method = values.get("innodb_flush_method", "").lower()
        if method in ("nosync", "o_direct_no_fsync", "littlesync"):
            problems.append(
                f"innodb_flush_method = {method}: data files are not synced; use fsync or O_DIRECT"
            )
        return cls(version, int(values.get("max_allowed_packet", 16 << 20)), tuple(problems))
