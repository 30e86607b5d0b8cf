"""One connection to the server, whose errors are ours.

A failed statement ends in one of three ways, and who called decides what to do about it:

- `Lost`: the connection is gone, or silent for too long. Whether the statement took effect is
  unknown. The connection is of no more use.
- `Busy`: the server rolled the transaction back because of others (a deadlock, a lock that took
  too long). It did not take effect; try again.
- one of `tidemill.errors`: the server refused, and would again.
"""

from __future__ import annotations

import ssl
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from tidemill.errors import (
    Bug,
    Corrupt,
    DiskFull,
    InvalidInput,
    MissingExtra,
    NoAccess,
    NotAQueue,
    StorageFailed,
    TidemillError,
    TooLarge,
)
from tidemill.log.mysql.address import Address
from tidemill.log.mysql.statements import COMMIT, ISOLATION, KILL, SESSION

try:
    import pymysql
    import pymysql.constants.CLIENT

    from tidemill.log.mysql.prepared import Argument, Prepared, query_command, run_together
except ImportError as cause:
    raise MissingExtra("a log on MySQL needs PyMySQL: pip install 'tidemill[mysql]'") from cause

# Locks of a client that vanished without a word go when the server ends its connection: after this
# long without a statement. So ours are renewed when they were idle for half of it.
IDLE_S = 20
LOCK_WAIT_S = 5
BADGE_S = 1  # how long to wait for an older connection with the same badge to be gone
CONNECT_S_MAX = 10.0

_BUSY = {1205, 1213, 1020}
# The server is going away, was told to end this connection, or has no room for another.
_LOST = {1040, 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1184, 1203, 1317, 1927, 1152, 4031}
_TLS = 2026  # CR_SSL_CONNECTION_ERROR: it was asked for, and the server has none
_REFUSED: dict[int, type[TidemillError]] = {
    1021: DiskFull,
    1041: DiskFull,
    1114: DiskFull,
    1820: NoAccess,
    1862: NoAccess,
    3118: NoAccess,
    4151: NoAccess,
    1044: NoAccess,
    1045: NoAccess,
    1142: NoAccess,
    1143: NoAccess,
    1227: NoAccess,
    1290: NoAccess,
    1698: NoAccess,
    1792: NoAccess,
    1836: NoAccess,
    1049: NotAQueue,
    1153: TooLarge,
    1146: Corrupt,
}


# What the driver raises if an answer is none of the protocol's.
_GARBLED = (IndexError, struct.error, UnicodeDecodeError)
_HINTS: dict[type[TidemillError], str] = {
    TooLarge: "; raise max_allowed_packet of the server",
    DiskFull: "; make room on the server",
}


class Lost(Exception):
    """The connection broke; what was under way may have taken effect or not."""


class Busy(Exception):
    """The server rolled back what was under way because of others."""


class _Driver(pymysql.Connection):
    """PyMySQL's connection, which uses TLS if the server offers it, without loading certificates
    that nothing is checked against each time.
    """

    def _create_ssl_ctx(self, sslp: dict[str, Any]) -> ssl.SSLContext:
        if not sslp:
            return _unverified()
        try:
            context: ssl.SSLContext = super()._create_ssl_ctx(sslp)  # type: ignore[misc]
        except OSError as cause:  # which errors of certificates are as well
            raise InvalidInput(
                f"ssl_ca names {sslp['ca']}, which holds no certificates that can be read: {cause}"
            ) from cause
        return context


@cache
def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Duplicate(StorageFailed):
    """A row with that key is there already."""


class Connection:
    """A connection on which each statement is by itself, unless it stands between BEGIN and
    COMMIT; without `autocommit` a transaction begins with the first statement.
    """

    def __init__(self, address: Address, badge: str, *, autocommit: bool = True) -> None:
        self.badge = badge  # see `badges`
        self._address = address
        self._prepared: dict[str, Prepared] = {}
        self._in_use = threading.Lock()
        self.used_s = time.monotonic()
        timeout_s = address.timeout_s
        try:
            self._driver: pymysql.Connection[Any] = _Driver(
                host=address.host,
                port=address.port,
                user=address.user,
                password=address.password,
                database=address.database,
                unix_socket=address.unix_socket,
                ssl_ca=address.ssl_ca,
                ssl_verify_identity=bool(address.ssl_ca),
                charset="utf8mb4",
                autocommit=autocommit,
                # Rows that an UPDATE finds count, whether it had to change them or not.
                client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
                connect_timeout=min(timeout_s, CONNECT_S_MAX),
                read_timeout=timeout_s,
                write_timeout=timeout_s,
            )
        except (pymysql.err.Error, OSError, *_GARBLED) as cause:
            raise self._ours(cause) from cause
        except RuntimeError as cause:
            # Some ways to log in need a package more, which the driver names.
            raise MissingExtra(f"to log in to {address.place}: {cause}") from cause
        try:
            self.execute(ISOLATION)
            self.execute(SESSION, LOCK_WAIT_S, LOCK_WAIT_S, IDLE_S, badge, BADGE_S)
        except BaseException:
            self.close()
            raise

    @property
    def is_stale(self) -> bool:
        """Whether it was idle for so long that the server may end it, or gone."""
        return not self._driver.open or time.monotonic() - self.used_s > IDLE_S / 2

    def query(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Run a statement, and give back its rows."""
        with self._statement(), self._driver.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def query_row(self, statement: str, *arguments: object) -> tuple[Any, ...]:
        """Run a statement that gives one row, of those that a log cannot be without."""
        rows = self.query(statement, *arguments)
        if len(rows) != 1:
            raise Corrupt(
                f"a row of the log's own is missing, restore it from a backup: {statement}"
            )
        return rows[0]

    def execute(self, statement: str, *arguments: object) -> int:
        """Run a statement, and give back how many rows it changed."""
        with self._statement(), self._driver.cursor() as cursor:
            return cursor.execute(statement, arguments)

    def execute_prepared(self, statement: str, arguments: Sequence[Argument]) -> int:
        """Run a statement that the server keeps; its parameters are written as `?`."""
        with self._statement():
            return self._prepare(statement).execute(arguments)

    def commit_together(
        self, steps: Sequence[tuple[str, Sequence[Argument]]]
    ) -> list[int | Exception]:
        """Run statements that the server keeps, then commit, all of it in one round trip.

        Returns for each, and for the commit, how many rows it changed or what it failed with: all
        of them are run, also behind one that failed. Raises `Lost` if the outcome is unknown.
        """
        with self._statement():
            commands = [self._prepare(text).command(arguments) for text, arguments in steps]
            answers = run_together(self._driver, [*commands, query_command(COMMIT)])
        found = [answer if isinstance(answer, int) else self._ours(answer) for answer in answers]
        for answer in found:
            if isinstance(answer, Lost):
                raise answer
        return found

    def _prepare(self, statement: str) -> Prepared:
        prepared = self._prepared.get(statement)
        if prepared is None:
            prepared = self._prepared[statement] = Prepared(self._driver, statement)
        return prepared

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """One statement and its answer. Two threads at once would get each other's answers, which
        must not go unnoticed.
        """
        if not self._in_use.acquire(blocking=False):
            raise Bug("two threads use one connection at once")
        try:
            yield
            self.used_s = time.monotonic()
        except (pymysql.err.Error, OSError, *_GARBLED) as cause:
            raise self._ours(cause) from cause
        finally:
            self._in_use.release()

    def kill(self, thread: int) -> None:
        """End another connection of ours, and with it what it was doing."""
        with self._statement(), self._driver.cursor() as cursor:
            try:
                cursor.execute(KILL.format(thread=int(thread)))
            except pymysql.err.Error as cause:
                # It is gone already, or somebody else's; then it ends when it was idle for long.
                if cause.args[:1] not in ((1094,), (1095,)):
                    raise

    def close(self) -> None:
        """Close it, without a word to the server, which may not answer; twice does no harm."""
        self._driver._force_close()  # type: ignore[attr-defined]

    def _ours(self, cause: BaseException) -> Exception:
        code = cause.args[0] if cause.args and isinstance(cause.args[0], int) else 0
        if code in _BUSY:
            return Busy(f"the server reports {code}")
        # A server that shows the wrong certificate, or none, does so again.
        unproven = getattr(cause, "original_exception", None)
        if code == _TLS or isinstance(unproven, ssl.SSLCertVerificationError):
            return NoAccess(
                f"the server of {self._address.place} does not prove with TLS who it is, as "
                f"ssl_ca asks: {unproven or cause.args[1]}"
            )
        # Codes from 2000 on are the client's: it could not connect, send or receive.
        lost = isinstance(cause, (OSError, pymysql.err.InterfaceError, *_GARBLED))
        if lost or code in _LOST or 2000 <= code < 3000 or "Packet sequence" in str(cause):
            return Lost(f"no connection to the server of {self._address.place}: {cause}")
        kind = Duplicate if code == 1062 else _REFUSED.get(code, StorageFailed)
        message = cause.args[1] if len(cause.args) > 1 else str(cause)
        hint = _HINTS.get(kind, "")
        return kind(f"the server of {self._address.place} refuses ({code}): {message}{hint}")
