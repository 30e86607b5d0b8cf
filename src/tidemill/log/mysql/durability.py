"""What the settings of MySQL or MariaDB promise about a commit that it has confirmed."""

from __future__ import annotations

from collections.abc import Mapping

from tidemill.log.sql.settings import ServerSettings

VARIABLE_NAMES = (
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "max_allowed_packet",
    "version",
)


def settings_of(values: Mapping[str, str]) -> ServerSettings:
    """What follows from the values; one that a server does not know promises nothing bad.

    >>> settings = settings_of({"innodb_flush_log_at_trx_commit": "2", "version": "8.0.36"})
    >>> settings.durability, len(settings.problems)
    ('buffered', 1)
    """
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
    packet = int(values.get("max_allowed_packet", 16 << 20))
    return ServerSettings(version, packet, "max_allowed_packet", tuple(problems))
