"""All of the SQL of a log on MySQL.

    tidemill_logs               one row per log of the database: its parallelism and layout
    queue_<name>_<nnn>_<ssss>   shard s of n: a row is an append, one frame or several
    queue_<name>_epoch          one row: who may append. Writers of rows lock it shared, so that a
                                takeover waits for them, and they for it
    queue_<name>_pointers       the writer's pointer, the first row, the last token, and consumers
    queue_<name>_producers      the last number of each producer
    queue_<name>_schemas        the versions of the payload's schema
    queue_<name>_notes          small facts
    queue_<name>_staging        frames of transactions that are not committed yet

No value is spliced into a statement: names of tables come from the grammar of names and are quoted,
everything else is an argument. Numbers that are not rows start with a slash in `…_pointers`, which
no consumer's name can.

Works under READ COMMITTED, which locks no gaps. All statements are understood by MariaDB 10.11 and
MySQL 8.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

WRITER = b"/writer"  # pointer: the last row that counts; token: the epoch; time: of that row
FIRST = b"/first"  # pointer: the first row that can be read
TOKEN = b"/token"  # token: the last one given to a receiver

ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
SESSION = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', "
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, "
    "innodb_lock_wait_timeout = %s, lock_wait_timeout = %s, wait_timeout = %s, "
    "@tidemill_badge = GET_LOCK(%s, %s)"
)

VARIABLES = "SHOW GLOBAL VARIABLES WHERE variable_name IN %s"

REGISTRY = """
CREATE TABLE IF NOT EXISTS tidemill_logs (
  name VARBINARY(64) NOT NULL PRIMARY KEY,
  folded VARBINARY(64) NOT NULL UNIQUE,
  parallelism SMALLINT NOT NULL,
  layout INT NOT NULL
) ENGINE=InnoDB
"""
REGISTER = "INSERT IGNORE INTO tidemill_logs VALUES (%s, %s, %s, 0)"
REGISTERED = "SELECT name, parallelism, layout FROM tidemill_logs WHERE folded = %s"
SET_LAYOUT = "UPDATE tidemill_logs SET layout = %s WHERE name = %s AND layout = %s"

LOCK = "SELECT GET_LOCK(%s, %s)"
UNLOCK = "SELECT RELEASE_LOCK(%s)"
IS_USED = "IS_USED_LOCK(%s)"  # by which connection
BEGIN = "START TRANSACTION"
COMMIT = "COMMIT"
ROLLBACK = "ROLLBACK"
KILL = "KILL {thread}"

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
    f"INSERT IGNORE INTO {{pointers}} VALUES ('{WRITER.decode()}', '{WRITER.decode()}', 0, 0, 0), "
    f"('{FIRST.decode()}', '{FIRST.decode()}', 1, 0, 0), "
    f"('{TOKEN.decode()}', '{TOKEN.decode()}', 0, 0, 0)",
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


class Statements:
    """The statements for one log.

    >>> Statements("orders", 4).shards[3]
    '`queue_orders_004_0003`'
    """

    def __init__(self, name: str, parallelism: int) -> None:
        """The name must have passed `check_log_name`: nothing in it needs escaping within ` `."""
        self.shards = [
            f"`queue_{name}_{parallelism:03}_{shard:04}`" for shard in range(parallelism)
        ]
        tables = {
            table: f"`queue_{name}_{table}`"
            for table in ("epoch", "pointers", "producers", "schemas", "notes", "staging")
        }
        self.tables = [table.strip("`") for table in [*self.shards, *tables.values()]]

        def filled(text: str) -> str:
            return text.format(**tables)

        self.create: Sequence[str] = [_SHARD.format(shard=shard) for shard in self.shards] + [
            filled(text) for text in _OTHERS
        ]
        self.create_staging = filled(_STAGING)
        self._write(filled)
        self._read(filled)
        self._keep(filled)
        self._stage(filled)

    def _write(self, filled: Callable[[str], str]) -> None:
        # Appending. One statement writes a row if the epoch is still the writer's, and locks it.
        self.insert = [
            filled(
                f"INSERT INTO {shard} (first, last, epoch, time, bytes, frame) "
                "SELECT ?, ?, ?, ?, ?, ? FROM {epoch} WHERE id = 1 AND epoch = ? LOCK IN SHARE MODE"
            )
            for shard in self.shards
        ]
        self.show = filled(
            f"UPDATE {{pointers}} SET pointer = %s, time = %s WHERE name = '{WRITER.decode()}' "
            "AND token = %s AND pointer = %s"
        )
        # The same for a row that is sent along with it: only if that row is really there.
        self.show_written = [
            filled(
                f"UPDATE {{pointers}} SET pointer = ?, time = ? WHERE name = '{WRITER.decode()}' "
                "AND token = ? AND pointer = ? AND EXISTS "
                f"(SELECT 1 FROM {shard} WHERE first = ? AND last = ? AND epoch = ?)"
            )
            for shard in self.shards
        ]
        self.is_there = [
            f"SELECT 1 FROM {shard} WHERE first = %s AND last = %s AND epoch BETWEEN %s AND %s"
            for shard in self.shards
        ]
        self.marks = filled("REPLACE INTO {producers} (name, number, first, last, digest) VALUES ")
        self.mark = filled("SELECT number, first, last, digest FROM {producers} WHERE name = %s")

        # Taking over: in one transaction.
        self.epoch = filled("SELECT epoch, owner FROM {epoch} WHERE id = 1")
        self.epoch_locked = self.epoch + " FOR UPDATE"
        self.set_epoch = filled("UPDATE {epoch} SET epoch = %s, owner = %s WHERE id = 1")
        self.fence_pointer = filled(
            f"UPDATE {{pointers}} SET token = %s WHERE name = '{WRITER.decode()}'"
        )
        self.written_locked = filled(
            f"SELECT pointer, time FROM {{pointers}} WHERE name = '{WRITER.decode()}' FOR UPDATE"
        )
        self.written = filled(
            f"SELECT pointer, time FROM {{pointers}} WHERE name = '{WRITER.decode()}'"
        )
        self.delete_above = [f"DELETE FROM {shard} WHERE first > %s" for shard in self.shards]

    def _read(self, filled: Callable[[str], str]) -> None:
        # Reading. One statement is one snapshot: the ends, and which rows lie where.
        self.ends = filled(
            f"SELECT (SELECT pointer FROM {{pointers}} WHERE name = '{FIRST.decode()}'), "
            f"(SELECT pointer FROM {{pointers}} WHERE name = '{WRITER.decode()}')"
        )
        self.find = self._find(filled("{pointers}"))
        self.frames = [
            f"SELECT first, frame FROM {shard} WHERE first BETWEEN %s AND %s ORDER BY first"
            for shard in self.shards
        ]
        self.time_before = " UNION ALL ".join(
            f"(SELECT first, last, time FROM {shard} WHERE first <= %s ORDER BY first DESC LIMIT 1)"
            for shard in self.shards
        )

    def _keep(self, filled: Callable[[str], str]) -> None:
        # Consumers.
        self.consumers = filled("SELECT name, pointer, token FROM {pointers} WHERE name >= '0'")
        self.first_shared = filled(
            f"SELECT pointer FROM {{pointers}} WHERE name = '{FIRST.decode()}' LOCK IN SHARE MODE"
        )
        self.next_token = filled(
            f"UPDATE {{pointers}} SET token = token + 1 WHERE name = '{TOKEN.decode()}'"
        )
        self.token = filled(f"SELECT token FROM {{pointers}} WHERE name = '{TOKEN.decode()}'")
        self.consumer = filled("SELECT name, pointer, token FROM {pointers} WHERE folded = %s")
        self.consumer_locked = self.consumer + " FOR UPDATE"
        self.add_consumer = filled("INSERT INTO {pointers} VALUES (%s, %s, %s, %s, 0)")
        self.set_token = filled("UPDATE {pointers} SET token = %s WHERE name = %s")
        self.move = filled(
            "UPDATE {pointers} SET pointer = %s WHERE name = %s AND token = %s AND pointer < %s"
        )
        self.remove = filled("DELETE FROM {pointers} WHERE name = %s AND name >= '0'")

        # Trimming: the first row moves in one transaction, what lies below goes piece by piece.
        self.first_locked = filled(
            f"SELECT pointer FROM {{pointers}} WHERE name = '{FIRST.decode()}' FOR UPDATE"
        )
        self.set_first = filled(
            f"UPDATE {{pointers}} SET pointer = %s WHERE name = '{FIRST.decode()}'"
        )
        self.delete_below = [
            f"DELETE FROM {shard} WHERE first < %s AND last < %s ORDER BY first LIMIT %s"
            for shard in self.shards
        ]

        # Schemas and notes.
        self.schemas = filled("SELECT number, description FROM {schemas} ORDER BY number")
        self.add_schema = filled("INSERT INTO {schemas} VALUES (%s, %s)")
        self.notes = filled("SELECT name, value FROM {notes}")
        self.add_note = filled("INSERT IGNORE INTO {notes} VALUES (%s, %s)")
        self.set_note = filled("UPDATE {notes} SET value = %s WHERE name = %s AND value = %s")
        self.note = filled("SELECT value FROM {notes} WHERE name = %s")

    def _stage(self, filled: Callable[[str], str]) -> None:
        # Staging. A frame may be sent again after a lost answer.
        self.stage = filled(
            "REPLACE INTO {staging} (attempt, number, name, made, header, body) "
            "VALUES (?, ?, ?, UNIX_TIMESTAMP(), ?, ?)"
        )
        self.staged = filled(
            "SELECT number, header FROM {staging} WHERE attempt = %s ORDER BY number"
        )
        self.waiting = filled(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0), "
            "COALESCE(SUM(made < UNIX_TIMESTAMP() - %s), 0) FROM {staging}"
        )
        # The body stays on the server. That the publisher's epoch still counts is known by then:
        # its pointer is moved before, in the same transaction.
        self.publish = [
            filled(
                f"INSERT INTO {shard} (first, last, epoch, time, bytes, frame) "
                "SELECT ?, ?, ?, ?, ?, CONCAT(?, body) FROM {staging} "
                "WHERE attempt = ? AND number = ?"
            )
            for shard in self.shards
        ]
        self.unstage = filled("DELETE FROM {staging} WHERE attempt = %s")
        self.sweep = filled("DELETE FROM {staging} WHERE name = %s LIMIT %s")
        self.sweep_old = filled("DELETE FROM {staging} WHERE made < UNIX_TIMESTAMP() - %s LIMIT %s")

    def _find(self, pointers: str) -> str:
        """Where the rows from a number on lie, with the ends of the log in front.

        Arguments: for each shard the number twice, and how many rows at most.
        """
        writer = f"(SELECT pointer FROM {pointers} WHERE name = '{WRITER.decode()}')"
        first = f"(SELECT pointer FROM {pointers} WHERE name = '{FIRST.decode()}')"
        parts = [f"(SELECT -1 AS shard, {first} AS first, {writer} AS last, 0 AS bytes)"]
        for number, shard in enumerate(self.shards):
            # From the row that the number lies in, which starts at or before it.
            parts.append(
                f"(SELECT {number}, first, last, bytes FROM {shard} WHERE first >= "
                f"COALESCE((SELECT MAX(first) FROM {shard} WHERE first <= %s), %s) "
                f"AND first <= {writer} ORDER BY first LIMIT %s)"
            )
        return " UNION ALL ".join(parts)


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
