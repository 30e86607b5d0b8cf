"""The SQL of a log on a server, but for the words in which servers differ.

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

Works under READ COMMITTED, where each statement sees what was committed before it began.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

WRITER = b"/writer"  # pointer: the last row that counts; token: the epoch; time: of that row
FIRST = b"/first"  # pointer: the first row that can be read
TOKEN = b"/token"  # token: the last one given to a receiver

REGISTERED = "SELECT name, parallelism, layout FROM tidemill_logs WHERE folded = %s"
SET_LAYOUT = "UPDATE tidemill_logs SET layout = %s WHERE name = %s AND layout = %s"

BEGIN = "START TRANSACTION"
COMMIT = "COMMIT"

# What every table of pointers starts with.
POINTERS = (
    f"('{WRITER.decode()}', '{WRITER.decode()}', 0, 0, 0), "
    f"('{FIRST.decode()}', '{FIRST.decode()}', 1, 0, 0), "
    f"('{TOKEN.decode()}', '{TOKEN.decode()}', 0, 0, 0)"
)
_MARK = "(%s, %s, %s, %s, %s)"


class Statements(ABC):
    """The statements for one log. What a server says in its own way is for its dialect."""

    registry: ClassVar[str]  # makes `tidemill_logs`
    register: ClassVar[str]  # adds a log with layout 0, unless it is there
    quote: ClassVar[str]  # around the names of tables
    place: ClassVar[str]  # of an argument in statements that the server keeps
    shared: ClassVar[str]  # locks what was selected, as others may as well
    now_s: ClassVar[str]  # since 1970

    def __init__(self, name: str, parallelism: int) -> None:
        """The name must have passed `check_log_name`: nothing in it needs escaping in quotes."""
        quote = self.quote
        self.shards = [
            f"{quote}queue_{name}_{parallelism:03}_{shard:04}{quote}"
            for shard in range(parallelism)
        ]
        tables = {
            table: f"{quote}queue_{name}_{table}{quote}"
            for table in ("epoch", "pointers", "producers", "schemas", "notes", "staging")
        }
        self.tables = [table.strip(quote) for table in [*self.shards, *tables.values()]]

        def filled(text: str) -> str:
            return text.format(name=name, **tables)

        self._make(filled)
        self._write(filled)
        self._read(filled)
        self._keep(filled)
        self._stage(filled)

    create: Sequence[str]  # makes the tables of layout 1
    create_staging: Sequence[str]  # makes that of layout 2

    @abstractmethod
    def _make(self, filled: Callable[[str], str]) -> None:
        """Set `create` and `create_staging`. Each can be repeated."""

    @abstractmethod
    def _added(self, table: str, values: str) -> str:
        """Inserts rows, unless they are there."""

    @abstractmethod
    def _replaced(self, table: str, keys: Sequence[str], columns: Sequence[str], rows: str) -> str:
        """Inserts rows, in place of those with the same keys."""

    @abstractmethod
    def _deleted(self, table: str, keys: str, where: str) -> str:
        """Deletes rows in the order of `where`, as many as the last argument says at most."""

    @abstractmethod
    def _joined(self, one: str, other: str) -> str:
        """Bytes behind bytes."""

    def marks(self, count: int) -> str:
        """Stores so many marks of producers, which are all different."""
        columns = ("number", "first", "last", "digest")
        return self._replaced(self._producers, ("name",), columns, ", ".join([_MARK] * count))

    def _write(self, filled: Callable[[str], str]) -> None:
        place = self.place

        def places(count: int) -> str:
            return ", ".join([place] * count)

        # Appending. One statement writes a row if the epoch is still the writer's, and locks it.
        self.insert = [
            filled(
                f"INSERT INTO {shard} (first, last, epoch, time, bytes, frame) "
                f"SELECT {places(6)} FROM {{epoch}} WHERE id = 1 AND epoch = {place} {self.shared}"
            )
            for shard in self.shards
        ]
        self.show = filled(
            f"UPDATE {{pointers}} SET pointer = %s, time = %s WHERE name = '{WRITER.decode()}' "
            "AND token = %s AND pointer = %s"
        )
        self.is_there = [
            f"SELECT 1 FROM {shard} WHERE first = %s AND last = %s AND epoch BETWEEN %s AND %s"
            for shard in self.shards
        ]
        self._producers = filled("{producers}")
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
            f"SELECT pointer FROM {{pointers}} WHERE name = '{FIRST.decode()}' {self.shared}"
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
            self._deleted(shard, "first", "first < %s AND last < %s ORDER BY first")
            for shard in self.shards
        ]

        # Schemas and notes.
        self.schemas = filled("SELECT number, description FROM {schemas} ORDER BY number")
        self.add_schema = filled("INSERT INTO {schemas} VALUES (%s, %s)")
        self.notes = filled("SELECT name, value FROM {notes}")
        self.add_note = self._added(filled("{notes}"), "(%s, %s)")
        self.set_note = filled("UPDATE {notes} SET value = %s WHERE name = %s AND value = %s")
        self.note = filled("SELECT value FROM {notes} WHERE name = %s")

    def _stage(self, filled: Callable[[str], str]) -> None:
        # Staging. A frame may be sent again after a lost answer.
        staging, place = filled("{staging}"), self.place
        self.stage = self._replaced(
            staging,
            ("attempt", "number"),
            ("name", "made", "header", "body"),
            f"({place}, {place}, {place}, {self.now_s}, {place}, {place})",
        )
        self.staged = filled(
            "SELECT number, header FROM {staging} WHERE attempt = %s ORDER BY number"
        )
        self.waiting = filled(
            "SELECT COUNT(*), COALESCE(SUM(LENGTH(body)), 0), COALESCE(SUM(CASE WHEN made < "
            f"{self.now_s} - %s THEN 1 ELSE 0 END), 0) FROM {{staging}}"
        )
        # The body stays on the server. That the publisher's epoch still counts is known by then:
        # its pointer is moved before, in the same transaction.
        self.publish = [
            filled(
                f"INSERT INTO {shard} (first, last, epoch, time, bytes, frame) "
                f"SELECT {', '.join([place] * 5)}, {self._joined(place, 'body')} FROM {{staging}} "
                f"WHERE attempt = {place} AND number = {place}"
            )
            for shard in self.shards
        ]
        self.unstage = filled("DELETE FROM {staging} WHERE attempt = %s")
        self.sweep = self._deleted(staging, "attempt, number", "name = %s")
        self.sweep_old = self._deleted(staging, "attempt, number", f"made < {self.now_s} - %s")

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
