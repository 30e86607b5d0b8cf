"""The SQL that is PostgreSQL's own. All of it is understood from version 14 on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemill.log.sql.statements import POINTERS, WRITER, Statements

# Locks of a client that vanished without a word go when its session has been idle for too long. All
# tables are in one schema: where a role makes tables, not wherever along its path others have some.
SESSION = (
    "SELECT set_config('default_transaction_isolation', 'read committed', false), "
    "set_config('default_transaction_read_only', 'off', false), "
    "set_config('statement_timeout', '0', false), "
    "set_config('lock_timeout', %s, false), "
    "set_config('idle_in_transaction_session_timeout', %s, false), "
    "set_config('idle_session_timeout', %s, false), "
    "set_config('search_path', quote_ident(current_schema()), false)"
)
SETTINGS = "SELECT {settings}"
SETTING = "current_setting('{name}')"

LOCK_TIMEOUT = "SELECT set_config('lock_timeout', %s, false)"
LOCK = "SELECT pg_advisory_lock(%s)"
UNLOCK = "SELECT pg_advisory_unlock(%s)"
# Does not wait until they are gone, for which the server would look every 100 ms: what they have
# locked is waited for anyway. Those of other roles are none of ours.
END_HOLDERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
    "WHERE application_name = ANY(%s) AND pid <> pg_backend_pid() "
    "AND usename = current_user AND datname = current_database()"
)
TABLES = (
    "SELECT c.relname::text, c.relpersistence::text FROM unnest(%s::text[]) AS wanted (name) "
    "JOIN pg_class c ON c.oid = to_regclass(quote_ident(wanted.name))"
)

_REGISTRY = """
CREATE TABLE IF NOT EXISTS tidemill_logs (
  name bytea NOT NULL PRIMARY KEY,
  folded bytea NOT NULL UNIQUE,
  parallelism smallint NOT NULL,
  layout int NOT NULL
)
"""

# Frames are compressed already, or shall not be: the server is not to try it again.
_SHARD = (
    """
CREATE TABLE IF NOT EXISTS {shard} (
  first bigint NOT NULL PRIMARY KEY,
  last bigint NOT NULL,
  epoch bigint NOT NULL,
  time bigint NOT NULL,
  bytes int NOT NULL,
  frame bytea NOT NULL
)
""",
    "ALTER TABLE {shard} ALTER COLUMN frame SET STORAGE EXTERNAL",
)

# Half of each page stays free for the versions of rows that change all the time.
_OTHERS = (
    """
CREATE TABLE IF NOT EXISTS {epoch} (
  id smallint NOT NULL PRIMARY KEY,
  epoch bigint NOT NULL,
  owner bytea NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS {pointers} (
  name bytea NOT NULL PRIMARY KEY,
  folded bytea NOT NULL UNIQUE,
  pointer bigint NOT NULL,
  token bigint NOT NULL,
  time bigint NOT NULL
) WITH (fillfactor = 50)
""",
    """
CREATE TABLE IF NOT EXISTS {producers} (
  name bytea NOT NULL PRIMARY KEY,
  number bigint NOT NULL,
  first bigint NOT NULL,
  last bigint NOT NULL,
  digest bytea NOT NULL
) WITH (fillfactor = 50)
""",
    """
CREATE TABLE IF NOT EXISTS {schemas} (
  number int NOT NULL PRIMARY KEY,
  description bytea NOT NULL
)
""",
    """
CREATE TABLE IF NOT EXISTS {notes} (
  name bytea NOT NULL PRIMARY KEY,
  value bytea NOT NULL
)
""",
    "INSERT INTO {epoch} VALUES (1, 0, '') ON CONFLICT DO NOTHING",
    f"INSERT INTO {{pointers}} VALUES {POINTERS} ON CONFLICT DO NOTHING",
)

_STAGING = (
    """
CREATE TABLE IF NOT EXISTS {staging} (
  attempt bytea NOT NULL,
  number int NOT NULL,
  name bytea NOT NULL,
  made bigint NOT NULL,
  header bytea NOT NULL,
  body bytea NOT NULL,
  PRIMARY KEY (attempt, number)
)
""",
    "ALTER TABLE {staging} ALTER COLUMN body SET STORAGE EXTERNAL",
    'CREATE INDEX IF NOT EXISTS "queue_{name}_staging_name" ON {staging} (name)',
    'CREATE INDEX IF NOT EXISTS "queue_{name}_staging_made" ON {staging} (made)',
)


class PostgresStatements(Statements):
    """The statements for one log.

    >>> PostgresStatements("orders", 4).shards[3]
    '"queue_orders_004_0003"'
    """

    registry = _REGISTRY
    register = "INSERT INTO tidemill_logs VALUES (%s, %s, %s, 0) ON CONFLICT DO NOTHING"
    quote = '"'
    place = "%s"
    shared = "FOR SHARE"
    now_s = "EXTRACT(EPOCH FROM clock_timestamp())::bigint"

    def _make(self, filled: Callable[[str], str]) -> None:
        # Sent as one, they are one transaction.
        shards = [text.format(shard=shard) for shard in self.shards for text in _SHARD]
        self.create = ["; ".join([*shards, *map(filled, _OTHERS)])]
        self.create_staging = ["; ".join(map(filled, _STAGING))]
        # One statement, which is wholly there or not at all: the pointer moves if the epoch is
        # still the writer's, and only then there is a row.
        self.show_and_insert = [
            filled(
                "WITH shown AS (UPDATE {pointers} SET pointer = %s, time = %s "
                f"WHERE name = '{WRITER.decode()}' AND token = %s AND pointer = %s RETURNING 1) "
                f"INSERT INTO {shard} (first, last, epoch, time, bytes, frame) "
                "SELECT %s, %s, %s, %s, %s, %s FROM shown"
            )
            for shard in self.shards
        ]

    def _added(self, table: str, values: str) -> str:
        return f"INSERT INTO {table} VALUES {values} ON CONFLICT DO NOTHING"

    def _replaced(self, table: str, keys: Sequence[str], columns: Sequence[str], rows: str) -> str:
        changes = ", ".join(f"{column} = EXCLUDED.{column}" for column in columns)
        return (
            f"INSERT INTO {table} ({', '.join([*keys, *columns])}) VALUES {rows} "
            f"ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {changes}"
        )

    def _deleted(self, table: str, keys: str, where: str) -> str:
        return (
            f"DELETE FROM {table} WHERE ({keys}) IN "
            f"(SELECT {keys} FROM {table} WHERE {where} LIMIT %s)"
        )

    def _joined(self, one: str, other: str) -> str:
        return f"{one} || {other}"
