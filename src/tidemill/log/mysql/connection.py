"""One connection to MySQL or MariaDB."""

from __future__ import annotations

import ssl
import struct
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
from tidemill.log.mysql.durability import VARIABLE_NAMES, settings_of
from tidemill.log.mysql.statements import (
    IS_USED,
    ISOLATION,
    KILL,
    LOCK,
    SESSION,
    TABLES,
    UNLOCK,
    VARIABLES,
    MySQLStatements,
)
from tidemill.log.sql import connection
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import (
    CONNECT_S_MAX,
    Argument,
    Busy,
    Connection,
    Duplicate,
    HalfWritten,
    Lost,
    check_one,
    values_of,
)
from tidemill.log.sql.rows import PackedRow
from tidemill.log.sql.settings import ServerSettings
from tidemill.log.sql.statements import BEGIN, COMMIT, Statements
from tidemill.log.sql.under_way import Numbers

try:
    import pymysql
    import pymysql.constants.CLIENT

    from tidemill.log.mysql.prepared import (
        TOGETHER_BYTES_MAX,
        Prepared,
        query_command,
        run_together,
    )
except ImportError as cause:
    raise MissingExtra("MySQL and MariaDB need PyMySQL: pip install 'tidemill[mysql]'") from cause

_SPARE_BYTES = 4096  # of a command, beside the frames
BADGE_S = 1  # how long to wait for an older connection with the same badge to be gone

_BUSY = {1205, 1213, 1020}
# The server is going away, was told to end this connection or this statement, by its operator or
# by a setting for what takes too long, or has no room for another, for all or for this user.
_LOST = {1040, 1053, 1077, 1079, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1317, 1927, 1969}
_LOST |= {1152, 3024, 4031}
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


class MySQLConnection(Connection):
    """One connection; without `autocommit` a transaction begins with the first statement."""

    together_bytes_max = TOGETHER_BYTES_MAX - _SPARE_BYTES

    def __init__(self, address: Address, badge: str, *, autocommit: bool = True) -> None:
        super().__init__(badge)
        self._address = address
        self._autocommit = autocommit
        self._prepared: dict[str, Prepared] = {}
        timeout_s = address.timeout_s
        try:
            self._driver: pymysql.Connection[Any] = _Driver(
                host=address.host,
                port=address.port,
                user=address.user,
                # As bytes: of a string the driver makes latin-1, which is not what was hashed, and
                # raises an error with the password in it if that cannot be done.
                password=address.password.encode(),
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
            lock_wait_s = connection.LOCK_WAIT_S
            self.execute(SESSION, lock_wait_s, lock_wait_s, connection.IDLE_S, badge, BADGE_S)
        except BaseException:
            self.close()
            raise

    @property
    def is_open(self) -> bool:
        return bool(self._driver.open)

    def fileno(self) -> int:
        return int(self._driver._sock.fileno())  # type: ignore[attr-defined]

    def query(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._statement(), self._driver.cursor() as cursor:
            cursor.execute(statement, arguments)
            return list(cursor.fetchall())

    def execute(self, statement: str, *arguments: object) -> int:
        with self._statement(), self._driver.cursor() as cursor:
            return cursor.execute(statement, arguments)

    def execute_prepared(self, statement: str, arguments: Sequence[Argument]) -> int:
        with self._statement():
            return self._prepare(statement).execute(arguments)

    def begin(self) -> None:
        if self._autocommit:
            self.execute(BEGIN)

    def write_row(
        self, statements: Statements, lane: int, row: PackedRow, time_us: int, epoch: int
    ) -> None:
        inserted, committed = self.commit_together(
            [(statements.insert[lane], values_of(row, time_us, epoch))]
        )
        check_one(inserted)
        if isinstance(committed, Exception):
            raise committed

    def write_and_show_row(
        self, statements: Statements, lane: int, row: PackedRow, numbers: Numbers, epoch: int
    ) -> None:
        """The server runs each of the statements whatever became of those before, so the pointer
        moves only if the row is there:

            row       pointer        commit
            written   moved          the append is there
            refused   finds no row   nothing is there
            written   refused        a row above the pointer, to be removed by a takeover
        """
        if not isinstance(statements, MySQLStatements):
            raise Bug("statements of another server")
        before = numbers.first - 1
        moved = (numbers.last, numbers.time_us, epoch, before, row.first, row.last, epoch)
        inserted, shown, committed = self.commit_together(
            [
                (statements.insert[lane], values_of(row, numbers.time_us, epoch)),
                (statements.show_written[lane], moved),
            ]
        )
        check_one(inserted)
        if isinstance(shown, Busy):
            raise HalfWritten("the row of the writer pointer was locked") from shown
        check_one(shown)
        if isinstance(committed, Exception):
            raise committed

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
        with self._alone():
            try:
                yield
            except (pymysql.err.Error, OSError, *_GARBLED) as cause:
                raise self._ours(cause) from cause

    def take_lock(self, name: str, wait_s: float) -> bool:
        return self.query(LOCK, name, wait_s) == [(1,)]

    def give_lock(self, name: str) -> None:
        self.query(UNLOCK, name)

    def end_holders(self, badges: Sequence[str]) -> None:
        asked = ", ".join([IS_USED] * len(badges))
        for thread in self.query(f"SELECT {asked}", *badges)[0]:
            if thread is not None:
                self._kill(int(thread))

    def _kill(self, thread: int) -> None:
        with self._statement(), self._driver.cursor() as cursor:
            try:
                cursor.execute(KILL.format(thread=thread))
            except pymysql.err.Error as cause:
                # It is gone already, or somebody else's; then it ends when it was idle for long.
                if cause.args[:1] not in ((1094,), (1095,)):
                    raise

    def settings(self) -> ServerSettings:
        values = self.query(VARIABLES, VARIABLE_NAMES)
        return settings_of({str(name): str(value) for name, value in values})

    def tables(self, names: Sequence[str]) -> dict[str, str]:
        # Some servers keep names in lower case; those of logs differ by more than case anyway.
        return {
            (name.decode() if isinstance(name, bytes) else name).lower(): _problem(str(engine))
            for name, engine in self.query(TABLES, names)
        }

    def close(self) -> None:
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


def _problem(engine: str) -> str:
    if engine.lower() == "innodb":
        return ""
    return f"uses the engine {engine}, which has no transactions: ALTER TABLE … ENGINE=InnoDB"
