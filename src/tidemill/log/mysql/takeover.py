"""Becoming the publisher: one transaction that takes the next epoch and removes what is above the
pointer.

Writers of rows lock the row of the epoch shared, so the transaction waits for those under way, and
later ones find an epoch that is not theirs. What they wrote is above the pointer, and goes.

The connections of a publisher that vanished may hold locks until the server notices, so they are
ended first. Each wears a badge to be found by: a named lock of the server, made of the owner in the
row of the epoch, which goes when the connection does.
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.errors import Corrupt
from tidemill.log.mysql.connection import Busy, Connection
from tidemill.log.mysql.statements import BEGIN, COMMIT, IS_USED, LOCK, Statements
from tidemill.log.refusals import publisher_fenced

BADGE_S = 1  # how long to wait for an older connection in the same place to be gone


def badge(owner: bytes, place: int) -> str:
    """The name of the lock that a publisher's connection holds.

    >>> badge(b"\\x01\\xff", 3)
    'tidemill-01ff-3'
    """
    return f"tidemill-{owner.hex()}-{place}"


def hold_badge(connection: Connection, owner: bytes, place: int) -> None:
    """Mark a publisher's connection as such, before it locks anything else."""
    if connection.query(LOCK, badge(owner, place), BADGE_S) != [(1,)]:
        raise Busy("an older connection of this publisher still holds on")


def _end_connections(connection: Connection, statements: Statements) -> None:
    """End the connections of whoever has the epoch now."""
    rows = connection.query(statements.epoch)
    owner = bytes(rows[0][1]) if rows else b""
    if owner:
        names = [badge(owner, place) for place in range(len(statements.shards) + 1)]
        asked = ", ".join([IS_USED] * len(names))
        for thread in connection.query(f"SELECT {asked}", *names)[0]:
            if thread is not None:
                connection.kill(int(thread))


class Taken(NamedTuple):
    """The new epoch, and where the writer pointer stands for good."""

    epoch: int
    pointer: int
    time_us: int


def take_over(
    connection: Connection, statements: Statements, owner: bytes, *, only_from: int | None = None
) -> Taken:
    """Take the next epoch as `owner`.

    With `only_from` it renews an epoch: `Fenced` unless the log still belongs to `owner`, whose
    last known epoch that is. A renewal that was lost on its way may have happened; then the epoch
    is higher, and the owner is still the same.
    """
    _end_connections(connection, statements)
    connection.execute(BEGIN)
    rows = connection.query(statements.epoch_locked)
    if not rows:
        raise Corrupt(f"the row of the epoch is missing: {statements.epoch}")
    epoch, current = int(rows[0][0]), bytes(rows[0][1])
    if only_from is not None and current != owner:
        connection.close()
        raise publisher_fenced(only_from, epoch)
    connection.execute(statements.set_epoch, epoch + 1, owner)
    written = connection.query(statements.written_locked)
    if not written:
        raise Corrupt(f"the row of the writer pointer is missing: {statements.written}")
    pointer, time_us = int(written[0][0]), int(written[0][1])
    connection.execute(statements.fence_pointer, epoch + 1)
    for delete in statements.delete_above:
        connection.execute(delete, pointer)
    connection.execute(COMMIT)
    return Taken(epoch + 1, pointer, time_us)
