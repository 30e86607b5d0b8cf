"""Whether a log is the one that its archive holds rows of: what both have must be the same.

    archive   1 … 50  51 … 100 │
    log       1 … 50  51 … 100 │ 101 … 150      the log that was archived
    another   1 … 50  51' … 150'                it came back without 51 … 100, and went on

A log comes back older from a backup, or after a power cut if rows need not be synced, and a copy of
its folder goes its own way; then numbers are given again, to rows that are in no archive.
"""

from __future__ import annotations

from tidemill.batch import LogBatch
from tidemill.errors import Corrupt, MissingRows
from tidemill.log.archive import parquet
from tidemill.log.archive.archive import Archive
from tidemill.log.archive.manifest import Manifest
from tidemill.log.contract import LogStore


def check_continued(log: LogStore, archive: Archive, manifest: Manifest) -> None:
    """Raise `Corrupt` if the log has other rows than its archive, before any of them is released.

    Where two logs went apart, no row behind has the same time in both; so the last one tells.
    """
    first, next_seq = log.ends()
    last = manifest.next - 1
    if last >= next_seq:
        raise Corrupt(
            f"{archive.place} holds rows up to {last}, and {log.place} ends at {next_seq - 1}: it "
            "is not the log that was archived, but an older copy"
        )
    if last < max(first, manifest.covered):
        return  # There is none that both should have.
    try:
        (mine,) = log.read(last, rows_max=1, bytes_max=1)
    except MissingRows:
        return  # The log has released it, after it was compared.
    (theirs,) = archive.read(last, rows_max=1, bytes_max=1, versions=manifest.versions)
    if not is_same_row(mine, theirs):
        raise Corrupt(
            f"row {last} of {log.place} is not the one of {archive.place}: it is an older copy of "
            "the log that was archived, or a copy of it was; nothing is released. Restore the "
            "archive to a new log, and send it the rows of this one that it lacks"
        )


def is_same_row(one: LogBatch, other: LogBatch) -> bool:
    """Whether two rows are the same, in the columns that both have."""
    names = set(one.schema.names) & set(other.schema.names)
    return one.times.equals(other.times) and all(
        parquet.are_same(one.payload[name], other.payload[name]) for name in names
    )
