"""The SQL that is MySQL's own. All of it is understood by MariaDB 10.11 and MySQL 8."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.log.sql.statements import POINTERS, WRITER, Statements

ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "innodb_lock_wait_timeout = %s, lock_wait_timeout = %s, wait_timeout = %s, "
    "@tidemill_badge = GET_LOCK(%s, %s)"
)

VARIABLES = "SHOW GLOBAL VARIABLES WHERE variable_name IN %s"

LOCK = "SELECT GET_LOCK(%s, %s)"
UNLOCK = "SELECT RELEASE_LOCK(%s)"
IS_USED = "IS_USED_LOCK(%s)"  # by which connection
KILL = "KILL {thread}"
TABLES = (
    "SELECT table_name, engine FROM information_schema.tables "
    "WHERE table_schema = DATABASE() AND table_name IN %s"
)

REGISTRY = """
CREATE TABLE IF NOT EXISTS tidemill_logs (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  folded VARBINARY(64) NOT NULL UNIQUE,
  parallelism SMALLINT NOT NULL,
  layout INT NOT NULL
) ENGINE=InnoDB
"""
REGISTER = "INSERT IGNORE INTO tidemill_logs VALUES (%s, %s, %s, 0)"

_SHARD = """
CREATE TABLE IF NOT EXISTS {shard} (
  first BIGINT NOT NULL PRIMARY KEY,
  last BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  time BIGINT NOT NULL,
  bytes INT NOT NULL,
  frame LONGBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
"""

_OTHERS = (
    """
CREATE TABLE IF NOT EXISTS {epoch} (
  id TINYINT NOT NULL PRIMARY KEY,
  epoch BIGINT NOT NULL,
  owner VARBINARY(16) NOT NULL
) ENGINE=InnoDB
""",
    """
CREATE TABLE IF NOT EXISTS {pointers} (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  folded VARBINARY(64) NOT NULL UNIQUE,
  pointer BIGINT NOT NULL,
  token BIGINT NOT NULL,
  time BIGINT NOT NULL
) ENGINE=InnoDB
""",
    """
CREATE TABLE IF NOT EXISTS {producers} (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL,
  first BIGINT NOT NULL,
  last BIGINT NOT NULL,
  digest VARBINARY(32) NOT NULL
) ENGINE=InnoDB
""",
    """
CREATE TABLE IF NOT EXISTS {schemas} (
  number INT NOT NULL PRIMARY KEY,
  description LONGBLOB NOT NULL
) ENGINE=InnoDB
""",
    """
CREATE TABLE IF NOT EXISTS {notes} (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  value LONGBLOB NOT NULL
) ENGINE=InnoDB
""",
    "INSERT IGNORE INTO {epoch} VALUES (1, 0, '')",
    f"INSERT IGNORE INTO {{pointers}} VALUES {POINTERS}",
)

_STAGING = """
CREATE TABLE IF NOT EXISTS {staging} (
  attempt VARBINARY(64) NOT NULL,
  number INT NOT NULL,
  name VARBINARY(128) NOT NULL,
  made BIGINT NOT NULL,
  header VARBINARY(128) NOT NULL,
  body LONGBLOB NOT NULL,
  PRIMARY KEY (attempt, number),
  KEY name (name),
  KEY made (made)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
"""


class MySQLStatements(Statements):
    """The statements for one log.

    >>> MySQLStatements("orders", 4).shards[3]
    '`queue_orders_004_0003`'
    """

    registry = REGISTRY
    register = REGISTER
    quote = "`"
    place = "?"
    shared = "LOCK IN SHARE MODE"
    now_s = "UNIX_TIMESTAMP()"

    def _make(self, filled: Callable[[str], str]) -> None:
        self.create = [_SHARD.format(shard=shard) for shard in self.shards] + [
            filled(text) for text in _OTHERS
        ]
        self.create_staging = [filled(_STAGING)]
        # Moves the pointer over a row that is sent along with it: only if that is really there.
        self.show_written = [
            filled(
                f"UPDATE {{pointers}} SET pointer = ?, time = ? WHERE name = '{WRITER.decode()}' "
                "AND token = ? AND pointer = ? AND EXISTS "
                f"(SELECT 1 FROM {shard} WHERE first = ? AND last = ? AND epoch = ?)"
            )
            for shard in self.shards
        ]

    def _added(self, table: str, values: str) -> str:
        return f"INSERT IGNORE INTO {table} VALUES {values}"

    def _replaced(self, table: str, keys: Sequence[str], columns: Sequence[str], rows: str) -> str:
        return f"REPLACE INTO {table} ({', '.join([*keys, *columns])}) VALUES {rows}"

    def _deleted(self, table: str, keys: str, where: str) -> str:  # noqa: ARG002
        return f"DELETE FROM {table} WHERE {where} LIMIT %s"

    def _joined(self, one: str, other: str) -> str:
        return f"CONCAT({one}, {other})"


_OUTBOX = """
CREATE TABLE IF NOT EXISTS {table} (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
{sources}  value LONGBLOB NOT NULL,
  round BIGINT NULL,
  KEY round (round)
) ENGINE=InnoDB
"""

_SOURCES = """  source_type INT NOT NULL,
  source_id BIGINT NOT NULL,
  source_name VARCHAR(255) CHARACTER SET utf8mb4 NOT NULL,
"""
_SOURCE_COLUMNS = ("source_type", "source_id", "source_name")
OUTBOX_COLUMNS = (
    "SELECT column_name FROM information_schema.columns "
    "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position"
)


class OutboxStatements:
    """The statements for one outbox; `round` is set while rows are on their way elsewhere.

    One that is sourced says of each row where it comes from, as `tm.SOURCED` does.

    >>> OutboxStatements("shop", "orders").table
    '`shop`.`outbox_orders`'
    """

    def __init__(self, database: str, name: str, *, is_sourced: bool = False) -> None:
        """Any database is quoted; the name must have passed `check_log_name`."""
        self.is_sourced = is_sourced
        self._database, self._name = database, name
        quoted = database.replace("`", "``")
        self.table = f"`{quoted}`.`outbox_{name}`"
        # The driver takes % for an argument.
        table = self.table.replace("%", "%%")
        self.columns = [*(_SOURCE_COLUMNS if is_sourced else ()), "value"]
        names = ", ".join(self.columns)
        size = "LENGTH(value) + LENGTH(source_name)" if is_sourced else "LENGTH(value)"
        self.create = _OUTBOX.format(table=table, sources=_SOURCES if is_sourced else "")
        places = ", ".join(["%s"] * len(self.columns))
        self.insert = f"INSERT INTO {table} ({names}) VALUES ({places})"
        self.count = f"SELECT COUNT(*) FROM {table}"
        self.sizes = f"SELECT id, {size} FROM {table} ORDER BY id LIMIT %s"
        self.rows = f"SELECT id, {names} FROM {table} WHERE id IN %s ORDER BY id"
        self.delete = f"DELETE FROM {table} WHERE id IN %s"
        self.begun = f"SELECT round, id, {names} FROM {table} WHERE round IS NOT NULL ORDER BY id"
        self.begin = f"UPDATE {table} SET round = %s WHERE id IN %s AND round IS NULL"
        self.end = f"DELETE FROM {table} WHERE round = %s"

    def of_columns(self, columns: Sequence[str]) -> OutboxStatements:
        """The statements for a table that has these columns."""
        return OutboxStatements(self._database, self._name, is_sourced="source_type" in columns)
