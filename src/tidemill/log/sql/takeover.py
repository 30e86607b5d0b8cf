"""Becoming the publisher: one transaction that takes the next epoch and removes what is above the
pointer.

Writers of rows lock the row of the epoch shared, so the transaction waits for those under way, and
later ones find an epoch that is not theirs. What they wrote is above the pointer, and goes.

The connections of a publisher that vanished may hold locks until the server notices, so they are
ended first (see `badges`).
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.errors import OutcomeUnknown
from tidemill.log.refusals import publisher_fenced
from tidemill.log.sql.badges import badge_of, end_holders
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.rows import PackedRow
from tidemill.log.sql.statements import BEGIN, COMMIT, Statements


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
    owned = connection.query(statements.epoch)
    if owned and only_from is not None and owned[0][1] != owner:
        # The connections of whoever came after are none of ours to end.
        raise publisher_fenced(only_from, int(owned[0][0]))
    if owned and owned[0][1]:
        places = range(len(statements.shards) + 1)
        end_holders(connection, [badge_of(owned[0][1], place) for place in places])
    connection.execute(BEGIN)
    locked, current = connection.query_row(statements.epoch_locked)
    epoch = int(locked)
    if only_from is not None and current != owner:
        connection.close()
        raise publisher_fenced(only_from, epoch)
    connection.execute(statements.set_epoch, epoch + 1, owner)
    pointer, time_us = map(int, connection.query_row(statements.written_locked))
    connection.execute(statements.fence_pointer, epoch + 1)
    for delete in statements.delete_above:
        connection.execute(delete, pointer)
    connection.execute(COMMIT)
    return Taken(epoch + 1, pointer, time_us)


def is_there(
    connection: Connection,
    statements: Statements,
    lane: int,
    row: PackedRow,
    epochs: tuple[int, int],  # the first and the last that its writer had
) -> bool:
    """Whether a row counts that was written before another publisher took over.

    `OutcomeUnknown` if its numbers are given, and neither it nor another row has them here any
    more: it may have counted before it was archived or trimmed.
    """
    if connection.query(statements.is_there[lane], row.first, row.last, *epochs):
        return True
    (pointer, _) = connection.query_row(statements.written)
    if int(pointer) < row.last:
        return False
    before = connection.query(statements.time_before, *[row.first] * len(statements.shards))
    if any(int(last) >= row.first for _, last, _ in before):
        return False
    raise OutcomeUnknown(
        f"whether rows from {row.first} to {row.last} are those of this publisher is unknown: "
        "another took over, and they were archived or trimmed since; read them to find out"
    )
