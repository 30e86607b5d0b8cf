"""One connection to a server, whose errors are ours: what each driver is made to do.

A failed statement ends in one of three ways, and who called decides what to do about it:

- `Lost`: the connection is gone, or silent for too long. Whether the statement took effect is
  unknown. The connection is of no more use.
- `Busy`: the server rolled the transaction back because of others (a deadlock, a lock that took
  too long). It did not take effect; try again.
- one of `tidemill.errors`: the server refused, and would again.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

from tidemill.errors import Bug, Corrupt, StorageFailed
from tidemill.log.sql.rows import PackedRow
from tidemill.log.sql.settings import ServerSettings
from tidemill.log.sql.sockets import is_readable
from tidemill.log.sql.statements import Statements
from tidemill.log.sql.under_way import Numbers

# Locks of a client that vanished without a word go when the server ends its connection: after this
# long without a statement. So ours are renewed when they were idle for half of it.
IDLE_S = 20
LOCK_WAIT_S = 5
CONNECT_S_MAX = 10.0

# Several parts are one blob, which nobody had to join before.
Argument = int | bytes | Sequence[bytes | memoryview]


class Lost(Exception):
    """The connection broke; what was under way may have taken effect or not."""


class Busy(Exception):
    """The server rolled back what was under way because of others."""


class Overtaken(Exception):
    """A statement found another epoch than the one it was written under, and changed nothing."""


class HalfWritten(Exception):
    """A row is there, and the pointer could not be moved over it."""


class Duplicate(StorageFailed):
    """A row with that key is there already."""


class Connection(ABC):
    """A connection on which each statement is by itself, unless it stands between BEGIN and
    COMMIT.
    """

    together_bytes_max: ClassVar[int]  # of a row that is written in one round trip

    def __init__(self, badge: str) -> None:
        self.badge = badge  # see `badges`
        self.used_s = time.monotonic()
        self._in_use = threading.Lock()

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether it is not known to be gone."""

    @abstractmethod
    def fileno(self) -> int:
        """What tells, between two statements, that the server has ended the connection."""

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for so long that the server may end it, or gone. What is sent on one
        that was ended would be in doubt for nothing.
        """
        is_idle = time.monotonic() - self.used_s > IDLE_S / 2
        return not self.is_open or is_idle or is_readable(self.fileno())

    @abstractmethod
    def query(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Run a statement, and give back its rows."""

    def query_row(self, statement: str, *arguments: object) -> tuple[Any, ...]:
        """Run a statement that gives one row, of those that a log cannot be without."""
        rows = self.query(statement, *arguments)
        if len(rows) != 1:
            raise Corrupt(
                f"a row of the log's own is missing, restore it from a backup: {statement}"
            )
        return rows[0]

    @abstractmethod
    def execute(self, statement: str, *arguments: object) -> int:
        """Run a statement, and give back how many rows it changed."""

    @abstractmethod
    def execute_prepared(self, statement: str, arguments: Sequence[Argument]) -> int:
        """Run a statement that the server keeps, as those are that carry frames."""

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction, unless the first statement does that anyway."""

    @abstractmethod
    def write_row(
        self, statements: Statements, lane: int, row: PackedRow, time_us: int, epoch: int
    ) -> None:
        """Write and commit one row in one round trip; `Overtaken` if the epoch is an old one."""

    @abstractmethod
    def write_and_show_row(
        self, statements: Statements, lane: int, row: PackedRow, numbers: Numbers, epoch: int
    ) -> None:
        """The same, with the pointer moved over the row: both or, but for `HalfWritten`, none."""

    @abstractmethod
    def take_lock(self, name: str, wait_s: float) -> bool:
        """Take a lock of the server that others know by the same name; it goes with the
        connection. False if somebody else had it for all that time.
        """

    @abstractmethod
    def give_lock(self, name: str) -> None:
        """Give back a lock that this connection has."""

    @abstractmethod
    def end_holders(self, badges: Sequence[str]) -> None:
        """End other connections of ours, and with them what they were doing."""

    @abstractmethod
    def settings(self) -> ServerSettings:
        """What the server promises; settings may change while it runs."""

    @abstractmethod
    def tables(self, names: Sequence[str]) -> Mapping[str, str]:
        """Those of the tables that are there, by their name in lower case, each with what is wrong
        with it: nothing, for most.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it, without waiting for the server, which may not answer; twice does no harm."""

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """One statement and its answer. Two threads at once would get each other's answers, which
        must not go unnoticed.
        """
        if not self._in_use.acquire(blocking=False):
            raise Bug("two threads use one connection at once")
        try:
            yield
            self.used_s = time.monotonic()
        finally:
            self._in_use.release()


def check_one(answer: int | Exception) -> None:
    """Each statement under an epoch changes one row, unless the epoch is not ours any more."""
    if isinstance(answer, Exception):
        raise answer
    if answer != 1:
        raise Overtaken


def values_of(row: PackedRow, time_us: int, epoch: int) -> Sequence[Argument]:
    """The arguments of `Statements.insert`."""
    return (row.first, row.last, epoch, time_us, row.size, row.parts, epoch)
