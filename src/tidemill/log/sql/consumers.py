"""Consumers on a server: their pointers, and the tokens of their receivers."""

from __future__ import annotations

from tidemill.errors import InvalidInput
from tidemill.log.contract import ConsumerClaim, ConsumerState
from tidemill.log.refusals import consumer_fenced, not_there_yet
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.statements import BEGIN, COMMIT, Statements
from tidemill.names import check_unique


def listed(connection: Connection, statements: Statements) -> dict[str, ConsumerState]:
    """All consumers, by name."""
    rows = connection.query(statements.consumers)
    return {name.decode(): ConsumerState(int(pointer), int(token)) for name, pointer, token in rows}


def claimed(connection: Connection, statements: Statements, name: str, start: int) -> ConsumerClaim:
    """Take the next token of a consumer, and make the consumer if it is not there.

    Repeating it takes another token, which fences nobody but the first try.
    """
    connection.execute(BEGIN)
    # A trim waits, so that it either respects the consumer or moved the first row before.
    (first,) = connection.query_row(statements.first_shared)
    connection.execute(statements.next_token)
    (token,) = connection.query_row(statements.token)
    found = connection.query(statements.consumer_locked, name.lower().encode())
    if found:
        check_unique(name, [found[0][0].decode()], what="consumer")
        pointer = int(found[0][1])
        connection.execute(statements.set_token, token, name.encode())
    else:
        written, _ = connection.query_row(statements.written)
        pointer = min(max(start, int(first)), int(written) + 1) - 1
        connection.execute(
            statements.add_consumer, name.encode(), name.lower().encode(), pointer, token
        )
    connection.execute(COMMIT)
    return ConsumerClaim(name, int(token), pointer)


def moved(
    connection: Connection,
    statements: Statements,
    claim: ConsumerClaim,
    pointer: int,
    *,
    known: int,
) -> None:
    """Store that all rows up to `pointer` are done. Repeating it changes nothing.

    Rows up to `known` are known to be there.
    """
    name = claim.name.encode()
    if not 0 <= pointer <= known:
        _check_exists(connection, statements, claim, pointer)
    if connection.execute(statements.move, pointer, name, claim.token, pointer):
        return
    check(connection, statements, claim)  # It stands there already, or the right is gone.


def check(connection: Connection, statements: Statements, claim: ConsumerClaim) -> None:
    """Raise `Fenced` if there is a newer token, or the consumer is gone."""
    found = connection.query(statements.consumer, claim.name.lower().encode())
    if not found or int(found[0][2]) != claim.token:
        raise consumer_fenced(claim.name)


def _check_exists(
    connection: Connection, statements: Statements, claim: ConsumerClaim, pointer: int
) -> None:
    if pointer < 0:
        raise InvalidInput(f"row {pointer} cannot be acked: numbers start at 1")
    written, _ = connection.query_row(statements.written)
    if pointer > int(written):
        check(connection, statements, claim)
        raise not_there_yet(pointer, int(written) + 1)
