"""One connection to PostgreSQL."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidemill.errors import Bug, InvalidInput, MissingExtra
from tidemill.log.postgres.durability import SETTING_NAMES, settings_of
from tidemill.log.postgres.statements import (
    END_HOLDERS,
    LOCK,
    LOCK_TIMEOUT,
    SESSION,
    SETTING,
    SETTINGS,
    TABLES,
    UNLOCK,
    PostgresStatements,
)
from tidemill.log.sql import connection
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import (
    CONNECT_S_MAX,
    Argument,
    Busy,
    Connection,
    check_one,
    values_of,
)
from tidemill.log.sql.rows import PackedRow
from tidemill.log.sql.settings import ServerSettings
from tidemill.log.sql.statements import BEGIN, Statements
from tidemill.log.sql.under_way import Numbers

try:
    import psycopg
    from psycopg.types.numeric import Int8BinaryDumper

    from tidemill.log.postgres.refusals import refusal, refusal_at_the_door
    from tidemill.log.postgres.waiting import PatientConnection
except ImportError as cause:
    raise MissingExtra(
        "a log on PostgreSQL needs psycopg: pip install 'tidemill[postgres]'"
    ) from cause

_CONNECT_S_MIN = 2  # less is more to the driver


class PostgresConnection(Connection):
    """One connection, on which each statement is by itself unless it stands in a transaction."""

    together_bytes_max = 1 << 30  # a row is one message, whatever its size

    def __init__(self, address: Address, badge: str, *, autocommit: bool = True) -> None:
        """Lanes get no connection of another kind: a statement by itself is a transaction."""
        del autocommit
        super().__init__(badge)
        self._address = address
        _check_certificates(address)
        try:
            self._driver = PatientConnection.connect(
                host=address.unix_socket or address.host,
                port=address.port,
                user=address.user or None,
                password=address.password or None,
                dbname=address.database,
                sslmode="verify-full" if address.ssl_ca else "prefer",
                sslrootcert=address.ssl_ca,
                application_name=badge,
                client_encoding="utf8",
                connect_timeout=max(_CONNECT_S_MIN, int(min(address.timeout_s, CONNECT_S_MAX))),
                autocommit=True,
            )
        except (psycopg.Error, OSError) as cause:
            raise refusal_at_the_door(cause, address.place) from cause
        self._driver.silent_s_max = address.timeout_s
        # One type for all numbers, so that a statement is prepared once.
        self._driver.adapters.register_dumper(int, Int8BinaryDumper)
        idle, lock = _milliseconds(connection.IDLE_S), _milliseconds(connection.LOCK_WAIT_S)
        try:
            self.query(SESSION, lock, idle, idle)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return not self._driver.closed

    def fileno(self) -> int:
        return self._driver.fileno()

    def query(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._statement():
            # Bytes travel as they are.
            cursor = self._driver.execute(statement, arguments, binary=True)
            return [] if cursor.description is None else list(cursor.fetchall())

    def execute(self, statement: str, *arguments: object) -> int:
        with self._statement():
            # Without arguments it may be several statements.
            return int(self._driver.execute(statement, arguments or None).rowcount)

    def execute_prepared(self, statement: str, arguments: Sequence[Argument]) -> int:
        values = [one if isinstance(one, (int, bytes)) else b"".join(one) for one in arguments]
        with self._statement():
            done = self._driver.execute(statement, values, prepare=True)
            return int(done.rowcount)

    def begin(self) -> None:
        self.execute(BEGIN)

    def write_row(
        self, statements: Statements, lane: int, row: PackedRow, time_us: int, epoch: int
    ) -> None:
        values = values_of(row, time_us, epoch)
        check_one(self.execute_prepared(statements.insert[lane], values))

    def write_and_show_row(
        self, statements: Statements, lane: int, row: PackedRow, numbers: Numbers, epoch: int
    ) -> None:
        """Whoever takes over locks the row of the pointer, too: it waits for this, or this for it,
        and then finds another epoch. So the row of the epoch need not be locked.
        """
        if not isinstance(statements, PostgresStatements):
            raise Bug("statements of another server")
        moved = (numbers.last, numbers.time_us, epoch, numbers.first - 1)
        written = (row.first, row.last, epoch, numbers.time_us, row.size, row.parts)
        check_one(self.execute_prepared(statements.show_and_insert[lane], (*moved, *written)))

    def take_lock(self, name: str, wait_s: float) -> bool:
        self.query(LOCK_TIMEOUT, _milliseconds(wait_s))
        try:
            self.query(LOCK, _key(name))
        except Busy:
            return False
        finally:
            if self.is_open:
                self.query(LOCK_TIMEOUT, _milliseconds(connection.LOCK_WAIT_S))
        return True

    def give_lock(self, name: str) -> None:
        self.query(UNLOCK, _key(name))

    def end_holders(self, badges: Sequence[str]) -> None:
        self.query(END_HOLDERS, list(badges))

    def settings(self) -> ServerSettings:
        asked = ", ".join(SETTING.format(name=name) for name in SETTING_NAMES)
        (values,) = self.query(SETTINGS.format(settings=asked))
        return settings_of(dict(zip(SETTING_NAMES, map(str, values), strict=True)))

    def tables(self, names: Sequence[str]) -> dict[str, str]:
        return {
            name.lower(): _problem(persistence)
            for name, persistence in self.query(TABLES, list(names))
        }

    def close(self) -> None:
        self._driver.close()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        with self._alone():
            try:
                yield
            except (psycopg.Error, OSError) as cause:
                raise refusal(cause, self._address.place) from cause


def _key(name: str) -> int:
    """The number by which the server knows a lock.

    >>> _key("tidemill:orders") == _key("tidemill:orders") != _key("tidemill:other")
    True
    """
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)


def _milliseconds(seconds: float) -> str:
    """A time as settings have it, where 0 would mean for ever.

    >>> _milliseconds(0.0), _milliseconds(5)
    ('1', '5000')
    """
    return str(max(1, round(seconds * 1000)))


def _problem(persistence: str) -> str:
    if persistence == "p":
        return ""
    return "is not logged, and is empty after a crash: ALTER TABLE … SET LOGGED"


def _check_certificates(address: Address) -> None:
    """Whether the file of certificates can be read; the driver tells it as a lost connection."""
    if address.ssl_ca is None or os.access(address.ssl_ca, os.R_OK):
        return
    raise InvalidInput(
        f"ssl_ca names {address.ssl_ca}, which holds no certificates that can be read"
    )
