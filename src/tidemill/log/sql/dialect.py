"""In what servers differ: how one connects to them, and how their SQL is written.

Everything else about a log on a server is the same, and stands in this folder. A server is known by
the scheme of its URLs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tidemill.errors import Bug
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import Connection
from tidemill.log.sql.statements import Statements


class Connect(Protocol):
    """Opens a connection. Without `autocommit` it is one that only appends use, each of which is a
    transaction.
    """

    def __call__(self, address: Address, badge: str, *, autocommit: bool = True) -> Connection: ...


@dataclass(frozen=True, slots=True)
class Dialect:
    """One kind of server."""

    connect: Connect
    statements: Callable[[str, int], Statements]  # of a log by its name and parallelism


def dialect_of(address: Address) -> Dialect:
    """The dialect of the server at an address, whose driver is an extra: `MissingExtra`."""
    if address.scheme == "mysql":
        from tidemill.log.mysql.dialect import MYSQL  # noqa: PLC0415 (only who needs it)

        return MYSQL
    if address.scheme == "postgresql":
        from tidemill.log.postgres.dialect import POSTGRES  # noqa: PLC0415

        return POSTGRES
    raise Bug(f"no dialect for {address.scheme}")
